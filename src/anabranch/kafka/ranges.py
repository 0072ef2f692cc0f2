"""Read a range of one partition: exactly the records at its offsets, each once, in order.

There may be fewer records than offsets: what compaction removed and the markers of transactions are holes. So a range
is not finished when so many records have come, but when the reader stands at its end or beyond: behind a record at or
above it, or at the end of the log, which the library reports with its position. A record above the range is dropped.

The consumer is kept between ranges, since connecting takes longer than reading a small one, and has no partition while
nobody reads: it would go on fetching. `consume(n, t)` waits for n or for t: the first record is waited for, and then
taken what is already here.
"""

from __future__ import annotations

import logging
import time
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as LibraryPartition

from anabranch.core.errors import Halted, PeerError, UsageError
from anabranch.kafka.client import LIBRARY_LOGGER, Connection, LastError, translated, translating
from anabranch.kafka.extents import START_ANEW, Range, Topics, lost_sentence, made_again_sentence
from anabranch.kafka.lookout import Lookout
from anabranch.kafka.messages import headers_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOGGER = logging.getLogger("anabranch.kafka.ranges")

POLL_S: Final = 0.5
ROWS_MAX: Final = 10_000
"""How many records are handed over at once: as many as Spark has in an Arrow batch by default."""
BYTES_MAX: Final = 8 * 1024 * 1024
QUERY_TIMEOUT_S: Final = 10.0

_OUT_OF_RANGE: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"})
_OWN: Final = {
    "auto.offset.reset": "where reading begins is said by startingOffsets",
    "enable.auto.commit": "progress is kept in the query's checkpoint",
    "enable.auto.offset.store": "progress is kept in the query's checkpoint",
    "enable.partition.eof": "the ends of partitions are followed by the source",
}

_first: Final = itemgetter(0)
_second: Final = itemgetter(1)


class Rows(NamedTuple):
    """Some records of a range, as columns."""

    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps_ms: Sequence[int]
    timestamp_types: Sequence[int]
    """As the library has them: 0 none, 1 when it was made, 2 when it was appended."""
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None]


class RangeReader:
    """A consumer that reads one range at a time. Used by one thread."""

    def __init__(self, connection: Connection, *, patience_s: float, go_on_after_loss: bool = False) -> None:
        """Prepare; raise UsageError for settings that cannot be."""
        for name, why in _OWN.items():
            if name in connection.settings:
                raise UsageError(f"option kafka.{name} cannot be set for the source: {why}; leave it out")
        self.lost_to_retention = 0
        self._connection = connection
        self._patience_s = patience_s
        self._go_on_after_loss = go_on_after_loss
        self._last_error = LastError()
        self._known: set[str] = set()
        self._lookout = Lookout(connection, Topics())
        with translating("setting up the consumer"):
            self._consumer = Consumer(connection.config(self._defaults()), logger=LIBRARY_LOGGER)

    def read(self, wanted: Range, *, with_headers: bool = False) -> Iterator[Rows]:
        """Give the records of a range. Raise when its topic was made anew, or when Kafka stays away for too long."""
        position = wanted.start
        held: list[Message] = []
        weight = 0
        try:
            self._go_to(wanted, position)
            while position < wanted.end:
                messages, position = self._next(wanted, position)
                held += messages
                weight += sum(map(len, messages))
                if held and (len(held) >= ROWS_MAX or weight >= BYTES_MAX) and position < wanted.end:
                    yield _rows(held, with_headers=with_headers)
                    held, weight = [], 0
        finally:
            self._consumer.unassign()
        self._check_topic(wanted)
        if held:
            yield _rows(held, with_headers=with_headers)

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()

    def _defaults(self) -> dict[str, Any]:
        return {
            "allow.auto.create.topics": False,
            "auto.offset.reset": "error",
            "client.id": "anabranch-source",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "error_cb": self._last_error,
            "fetch.error.backoff.ms": 100,
            "fetch.queue.backoff.ms": 5,  # the default of 1,000 stalls a fast reader for up to a second
            # A new range waits for the answer to the last fetch of the old one, so long at most.
            "fetch.wait.max.ms": 10,
            "group.id": "anabranch-source",  # nothing is joined or committed, but the library wants a name
            "queued.max.messages.kbytes": 16 * 1024,
            "reconnect.backoff.max.ms": 1000,
        }

    def _go_to(self, wanted: Range, position: int) -> None:
        with translating(f"reading {wanted}"):
            if wanted.topic not in self._known:
                # A topic that the library has not heard of yet is looked for once a second; this is quicker.
                self._consumer.list_topics(wanted.topic, timeout=self._patience_s)
                self._known.add(wanted.topic)
            self._consumer.assign([LibraryPartition(wanted.topic, wanted.partition, position)])

    def _next(self, wanted: Range, position: int) -> tuple[list[Message], int]:
        """Wait for records; return those of the range, and the position behind all that came."""
        deadline = time.monotonic() + self._patience_s
        while True:
            first = self._consumer.poll(min(POLL_S, self._patience_s))
            if first is not None:
                more = min(ROWS_MAX, wanted.end - position) - 1
                messages = [first, *self._consumer.consume(more, 0)] if more > 0 else [first]
                found, reached = self._taken(messages, wanted, position)
                if reached > position:
                    return found, reached
            if time.monotonic() > deadline:
                raise PeerError(
                    f"{wanted}: nothing came after {position} for {self._patience_s:g} s "
                    f"({self._last_error.reason or 'the broker does not answer'}): is the broker running, and is its "
                    "log as long as it was?"
                )

    def _taken(self, messages: list[Message], wanted: Range, position: int) -> tuple[list[Message], int]:
        if not any(map(Message.error, messages)):
            first, last = messages[0], messages[-1]
            ours = _is_of(first, wanted) and _is_of(last, wanted)
            if ours and position <= _offset(first) and _offset(last) < wanted.end:  # the way of most
                return messages, _offset(last) + 1
        found = []
        for message in messages:
            error, offset = message.error(), _offset(message)
            if not _is_of(message, wanted):
                if error is not None and message.topic() is None:
                    self._met(error, 0, wanted, position)
            elif error is not None:
                position = max(position, self._met(error, offset, wanted, position))
            elif offset >= position:
                if offset < wanted.end:
                    found.append(message)
                position = offset + 1
        return found, position

    def _met(self, error: KafkaError, offset: int, wanted: Range, position: int) -> int:
        """Deal with a report of the library; return the position that follows from it."""
        if error.name() == "_PARTITION_EOF":
            return offset
        if error.name() in _OUT_OF_RANGE:
            return self._strayed(wanted, position)
        if error.name() in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"} or error.retriable():
            self._last_error.reason = error.str()
            return position
        raise translated(error, f"reading {wanted}")

    def _strayed(self, wanted: Range, position: int) -> int:
        """Decide about a position that the log does not have."""
        self._check_topic(wanted)
        with translating(f"reading {wanted}"):
            low, high = self._consumer.get_watermark_offsets(
                LibraryPartition(wanted.topic, wanted.partition), timeout=QUERY_TIMEOUT_S
            )
        if high < wanted.end:
            raise Halted(f"{wanted}: the log ends at {high} now; it was truncated. {START_ANEW}")
        lost = min(low, wanted.end) - position
        said = lost_sentence(wanted.topic, wanted.partition, position, lost)
        if not self._go_on_after_loss:
            raise Halted(f"{said}; to go on without them, set option failOnDataLoss to false")
        LOGGER.warning("%s; going on at %d", said, low)
        self.lost_to_retention += lost
        self._go_to(wanted, max(low, position))
        return max(low, position)

    def _check_topic(self, wanted: Range) -> None:
        """Raise if the topic is another one by now. Its id never comes back: what was read before is of the old one."""
        if not wanted.topic_id:
            return
        topic_id, _ = self._lookout.shapes([wanted.topic])[wanted.topic]
        if topic_id != wanted.topic_id:
            raise UsageError(made_again_sentence(wanted.topic))


def _is_of(message: Message, wanted: Range) -> bool:
    return message.partition() == wanted.partition and message.topic() == wanted.topic


def _offset(message: Message) -> int:
    return int(message.offset() or 0)


def _rows(messages: list[Message], *, with_headers: bool) -> Rows:
    times = list(map(Message.timestamp, messages))
    return Rows(
        list(map(Message.offset, messages)),  # type: ignore[arg-type] # a record has an offset
        list(map(Message.key, messages)),
        list(map(Message.value, messages)),
        list(map(_second, times)),
        list(map(_first, times)),
        headers_of(messages) if with_headers else list(repeat(None, len(messages))),
    )
