"""Write rows to topics in the order in which they come, until all are acknowledged, or fail.

An idempotent producer keeps the order per partition through its own retries. The first row that comes back with an
error ends it: what is still queued is thrown away and the caller is told, so that he can do all of it again. Trying
single rows again would let others overtake them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from anabranch.core.errors import AnabranchError, PeerError, UsageError
from anabranch.kafka.client import LIBRARY_LOGGER, LastError, is_unreachable, translating
from anabranch.kafka.sending import TOO_LARGE
from anabranch.kafka.topics import SinkTopics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.kafka.settings import SinkSettings

FULL_S: Final = 0.1
"""How long a row waits at a time for room in the library's queue."""
SERVE_EVERY: Final = 1000
"""After so many rows it is heard what became of earlier ones."""
TOPIC_RETRY_S: Final = 0.1


class RowWriter:
    """Writes the rows of one task. Used by one thread."""

    def __init__(self, settings: SinkSettings, *, outage_s: float) -> None:
        """Prepare; `outage_s` is how long a row may wait for its acknowledgement."""
        self.rows = 0
        self._outage_s = outage_s
        self._topics = SinkTopics(settings)
        self._last_error = LastError()
        self._failure: AnabranchError | None = None
        config = settings.producer_config()
        config["message.timeout.ms"] = int(outage_s * 1000)
        config["linger.ms"] = settings.extra.get("linger.ms", "5")  # rows come in bulk: full batches are cheaper
        with translating("setting up the producer"):
            self._producer = Producer({**config, "error_cb": self._last_error}, logger=LIBRARY_LOGGER)

    def write(
        self,
        topic: str,
        key: bytes | str | None,
        value: bytes | str | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
        partition: int | None,
    ) -> None:
        """Take a row; waits while the library's queue is full. Raise for the first row that could not be written."""
        if topic not in self._topics.partitions:
            self._find(topic)
        self.rows += 1
        if self.rows % SERVE_EVERY == 0:
            self._producer.poll(0)
        while True:
            if self._failure is not None:
                self._give_up()
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    -1 if partition is None else partition,
                    self._ended,
                    headers=list(headers) if headers else None,
                )
                return
            except BufferError:
                self._producer.poll(FULL_S)
            except KafkaException as error:
                self._failure = self._translated(error.args[0], topic)

    def flush(self) -> None:
        """Wait until all rows are acknowledged; raise if one never will be."""
        while len(self._producer) and self._failure is None:
            self._producer.flush(FULL_S)
        if self._failure is not None:
            self._give_up()

    def _find(self, topic: str) -> None:
        deadline = time.monotonic() + self._outage_s
        while topic not in self._topics.partitions:
            refusal = self._topics.find(topic, None)
            if refusal is not None:
                raise refusal
            if topic not in self._topics.partitions:
                if time.monotonic() > deadline:
                    raise PeerError(f"topic {topic} could not be found for {self._outage_s:g} s: {self._reason()}")
                self._producer.poll(TOPIC_RETRY_S)

    def _ended(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = self._translated(error, str(message.topic()))

    def _give_up(self) -> None:
        assert self._failure is not None
        self._producer.purge()
        raise self._failure

    def _translated(self, error: KafkaError, topic: str) -> AnabranchError:
        said = f"a row was refused by topic {topic}: {error.str()}"
        if error.name() in TOO_LARGE:
            return PeerError(
                f"{said}; raise max.message.bytes of the topic, or, if no row is that large, set option "
                "kafka.batch.size below it"
            )
        if is_unreachable(error):
            return PeerError(f"a row was not acknowledged by topic {topic} for {self._outage_s:g} s: {self._reason()}")
        if error.name() in {"_UNKNOWN_PARTITION", "_INVALID_ARG"}:
            return UsageError(f"{said}; topic {topic} has {self._topics.partitions.get(topic)} partitions")
        return PeerError(f"{said}; allow this client to write there")

    def _reason(self) -> str:
        return self._topics.problem or self._last_error.reason or "no broker answers"
