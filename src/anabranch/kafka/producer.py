"""Write records: idempotent, acks=all, and with an exact account of what was acknowledged and what was not."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from anabranch.core.errors import UsageError
from anabranch.kafka.client import (
    LIBRARY_LOGGER,
    Connection,
    LastError,
    is_unreachable,
    metadata,
    translated,
    translating,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.kafka.record import NewRecord

TOPIC_WAIT_S = 2.0  # a topic that is created on demand takes some brokers a moment
TOPIC_RETRY_S = 0.1
_NOT_YET = frozenset({"UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"})


@dataclass(frozen=True, slots=True)
class Statistics:
    """An account of the records taken so far."""

    submitted: int
    acknowledged: int
    failed: Mapping[str, int]
    unreachable: bool

    @property
    def undelivered(self) -> int:
        """Return how many records were taken and not acknowledged."""
        return self.submitted - self.acknowledged


class RecordProducer:
    """Writes to one topic. `submit` and `poll` never lose a record silently: `statistics` accounts for each."""

    def __init__(self, connection: Connection, topic: str, *, codec: str, timeout_s: float) -> None:
        """Connect and find the topic; raise UnreachableError or UsageError when either is not there."""
        self._connection = connection
        self._topic = topic
        self._last_error = LastError()
        self._submitted = 0
        self._acknowledged = 0
        self._failed: Counter[str] = Counter()
        self._unreachable = False
        defaults = {
            "acks": "all",
            "client.id": "anabranch-cli",
            "compression.type": codec,
            "delivery.timeout.ms": int(timeout_s * 1000),
            "enable.idempotence": True,
            "error_cb": self._last_error,
            "message.max.bytes": 100_000_000,  # the broker knows the limit of the topic; ours would only be another
            "partitioner": "murmur2_random",
        }
        with translating("setting up the producer", connection):
            self._producer = Producer(connection.config(defaults), logger=LIBRARY_LOGGER)
        self.partitions = self._find_topic()

    def submit(self, record: NewRecord) -> bool:
        """Take a record; answer False when the queue is full: `poll`, then try again."""
        partition = -1 if record.partition is None else record.partition
        try:
            self._producer.produce(
                self._topic,
                record.value,
                record.key,
                partition,
                self._delivered,
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers) or None,
            )
        except BufferError:
            return False
        except KafkaException as error:
            self._fail(error.args[0])
        self._submitted += 1
        return True

    def poll(self, timeout_s: float = 0.0) -> None:
        """Hear what became of records, waiting at most the time-out for news."""
        self._producer.poll(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Wait until the fate of every record is known; answer whether it is."""
        return self._producer.flush(timeout_s) == 0

    def statistics(self) -> Statistics:
        """Return the account so far."""
        return Statistics(self._submitted, self._acknowledged, dict(self._failed), self._unreachable)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acknowledged += 1
        else:
            self._fail(error)

    def _fail(self, error: KafkaError) -> None:
        self._failed[error.str()] += 1
        self._unreachable = self._unreachable or is_unreachable(error)

    def _find_topic(self) -> int:
        """Return how many partitions the topic has; asking for it creates it where the broker allows that."""
        deadline = time.monotonic() + TOPIC_WAIT_S
        while True:
            answer = metadata(self._producer, self._connection, self._last_error, self._topic)
            found = answer.topics[self._topic]
            if found.error is None and found.partitions:
                return len(found.partitions)
            if found.error is not None and found.error.name() not in _NOT_YET:
                raise translated(found.error, f"finding topic {self._topic}")
            if time.monotonic() > deadline:
                raise UsageError(f"no topic {self._topic!r}: create it with `anabranch topics create {self._topic}`")
            self._producer.poll(TOPIC_RETRY_S)
