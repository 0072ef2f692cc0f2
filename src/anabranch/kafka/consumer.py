"""Read records: with explicit positions, or as a member of a group that commits what it was told is done.

The reader keeps three things about partitions:

- *owned*: the partitions assigned now. A report about any other partition is dropped: it has another owner, whose
  committed position ours must not move.
- *done*: the position after the last record that `settle` reported, and that is not yet committed.
- *ended*: the partitions whose end was reached once; `finished` when these are all. What arrives later does not undo
  it, or a busy topic would never end.

Offsets that are not there are told, not guessed: a start outside of the log is moved to its nearer edge with a notice.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, Consumer, KafkaException, TopicPartition

from anabranch.core.errors import PeerError, UsageError
from anabranch.core.records import Record
from anabranch.kafka.client import (
    LIBRARY_LOGGER,
    Connection,
    LastError,
    is_unreachable,
    metadata,
    translated,
    translating,
)
from anabranch.kafka.start import Start, StartKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confluent_kafka import Message

    from anabranch.kafka.record import Headers

CONTACT_S_MAX = 10.0  # no broker for so long: say so and stop, rather than hang in a script
QUERY_TIMEOUT_S = 10.0
_REFUSED_FOR_NOW = frozenset({"REBALANCE_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS", "_WAIT_COORD"})


class RecordReader:
    """Reads topics from a start. Used by one thread."""

    def __init__(
        self, connection: Connection, start: Start, group: str | None = None, *, until_end: bool = False
    ) -> None:
        """Prepare; nothing is sent before `open`. Only with `until_end` is `finished` ever true."""
        if start.kind is StartKind.STORED and group is None:
            raise UsageError("start 'stored' is the position of a group: name one with -g GROUP")
        self.notices: list[str] = []
        self._connection = connection
        self._start = start
        self._group = group
        self._until_end = until_end
        self._last_error = LastError()
        self._lost_contact_at: float | None = None
        self._owned: set[tuple[str, int]] = set()
        self._done: dict[tuple[str, int], int] = {}
        self._ended: set[tuple[str, int]] = set()
        self._assigned_once = False
        with translating("setting up the consumer", connection):
            self._consumer = Consumer(connection.config(self._defaults()), logger=LIBRARY_LOGGER)

    def open(self, topics: Sequence[str], partitions: Sequence[int] = ()) -> None:
        """Begin to read all partitions of the topics, or only those given; all topics must exist.

        Raise UnreachableError within a few seconds when nobody answers.
        """
        found = {topic: self._partitions_of(topic, partitions) for topic in topics}
        if self._group is not None:
            self._consumer.subscribe(
                list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            return
        chosen = [TopicPartition(topic, each) for topic, numbers in found.items() for each in numbers]
        with translating("finding the start"):
            self._consumer.assign(self._positioned(chosen))
        self._own(chosen)

    @property
    def finished(self) -> bool:
        """Tell whether the end of every owned partition was reached."""
        return self._until_end and self._assigned_once and self._owned <= self._ended

    def read(self, count_max: int, timeout_s: float) -> list[Record]:
        """Return records as soon as there is one, at most so many; nothing when the time-out passes without any."""
        with translating("reading"):
            first = self._consumer.poll(timeout_s)
            if first is None:
                self._check_contact()
                return []
            rest = self._consumer.consume(count_max - 1, 0) if count_max > 1 else []
        self._lost_contact_at = None
        self._last_error.all_down = False
        records = (self._record(message) for message in (first, *rest))
        return [record for record in records if record is not None]

    def settle(self, records: Iterable[Record]) -> None:
        """Report records as done; `commit` stores the position after them."""
        for record in records:
            if (record.topic, record.partition) in self._owned:
                self._done[record.topic, record.partition] = record.offset + 1

    def commit(self) -> None:
        """Store the positions after what is done, if there are new ones and a group; waits for the answer.

        A group that is just being rebalanced may refuse for now: the positions are kept for the next call, and
        `close` makes the last one.
        """
        try:
            self._commit(set(self._done))
        except PeerError as error:
            if _library_error_name(error) not in _REFUSED_FOR_NOW:
                raise

    def close(self) -> None:
        """Commit what is done, leave the group and close the connections."""
        try:
            self._commit(set(self._done))
        finally:
            self._consumer.close()

    def _defaults(self) -> dict[str, Any]:
        return {
            "auto.offset.reset": "error" if self._group is None else "earliest",
            "client.id": "anabranch-cli",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": self._until_end,
            "error_cb": self._last_error,
            # A partition's end shows in an answer without records, which the broker holds back for so long.
            "fetch.wait.max.ms": 50 if self._until_end else 500,
            "fetch.queue.backoff.ms": 5,
            # Without a group nothing is joined or committed, but the library wants a name.
            "group.id": self._group or "anabranch-cli",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 10_000,
        }

    def _partitions_of(self, topic: str, wanted: Sequence[int]) -> Sequence[int]:
        found = metadata(self._consumer, self._connection, self._last_error, topic).topics[topic]
        if found.error is not None and found.error.name() != "UNKNOWN_TOPIC_OR_PART":
            raise translated(found.error, f"finding topic {topic}")
        if not found.partitions:
            raise UsageError(f"no topic {topic!r}: `anabranch topics ls` shows what there is")
        for each in wanted:
            if each not in found.partitions:
                raise UsageError(f"topic {topic} has no partition {each}, only 0 to {len(found.partitions) - 1}")
        return wanted or sorted(found.partitions)

    def _positioned(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions with the offsets at which reading begins."""
        kind = self._start.kind
        logical = {
            StartKind.BEGINNING: OFFSET_BEGINNING,
            StartKind.END: OFFSET_END,
            StartKind.STORED: OFFSET_STORED,
        }
        if kind in logical:
            return [TopicPartition(each.topic, each.partition, logical[kind]) for each in partitions]
        if kind is StartKind.TIME:
            asked = [TopicPartition(each.topic, each.partition, self._start.number) for each in partitions]
            return self._consumer.offsets_for_times(asked, timeout=QUERY_TIMEOUT_S) if asked else []
        return [self._within_log(each) for each in partitions]

    def _within_log(self, each: TopicPartition) -> TopicPartition:
        low, high = self._consumer.get_watermark_offsets(each, timeout=QUERY_TIMEOUT_S)
        if self._start.kind is StartKind.LAST:
            return TopicPartition(each.topic, each.partition, max(low, high - self._start.number))
        offset = min(max(self._start.number, low), high)
        if offset != self._start.number:
            self.notices.append(
                f"{each.topic}/{each.partition}: offset {self._start.number} is outside of {low} to {high}; "
                f"starting at {offset}"
            )
        return TopicPartition(each.topic, each.partition, offset)

    def _own(self, partitions: Iterable[TopicPartition]) -> None:
        self._assigned_once = True
        self._owned.update((each.topic, each.partition) for each in partitions)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(self._positioned(partitions))
        self._own(partitions)
        if not self._owned:
            self.notices.append(f"other members of group {self._group} read all partitions; none is left for us")

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        names = {(each.topic, each.partition) for each in partitions}
        try:
            self._commit(names & set(self._done))
        except PeerError as error:
            self.notices.append(f"{error}; the next member reads again what was printed since the last commit")
        self._disown(names)
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        names = {(each.topic, each.partition) for each in partitions}
        if names & set(self._done):
            self.notices.append(
                "the group went on without us; others read again what was printed since the last commit"
            )
        self._disown(names)
        consumer.incremental_unassign(partitions)

    def _disown(self, names: set[tuple[str, int]]) -> None:
        self._owned -= names
        self._ended -= names
        for name in names:
            self._done.pop(name, None)

    def _commit(self, names: set[tuple[str, int]]) -> None:
        offsets = [TopicPartition(*name, self._done[name]) for name in sorted(names)]
        if not offsets or self._group is None:
            return
        with translating(f"committing for group {self._group}"):
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
            for answer in answers or ():
                if answer.error is not None:
                    raise KafkaException(answer.error)
        for name in names:
            del self._done[name]

    def _record(self, message: Message) -> Record | None:
        error = message.error()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is not None:
            if error.name() == "_PARTITION_EOF":
                self._ended.add((str(topic), int(partition or 0)))
            elif not is_unreachable(error):
                raise translated(error, f"reading {topic or 'records'}")
            return None
        timestamp_kind, timestamp_ms = message.timestamp()
        return Record(
            str(topic),
            int(partition or 0),
            int(offset or 0),
            message.key(),
            message.value(),
            _headers(message),
            timestamp_ms if timestamp_kind else -1,
        )

    def _check_contact(self) -> None:
        """Raise when all brokers have been away for too long; a broker that restarts is waited for."""
        if not self._last_error.all_down:
            return
        now = time.monotonic()
        if self._lost_contact_at is None:
            self._lost_contact_at = now
            self.notices.append(f"no broker answers ({self._last_error.reason}); trying again")
        try:
            self._consumer.list_topics(timeout=1.0)
        except KafkaException as error:
            if now - self._lost_contact_at > CONTACT_S_MAX:
                raise self._connection.unreachable(self._last_error.reason) from error
        else:
            self._lost_contact_at = None
            self._last_error.all_down = False


def _headers(message: Message) -> Headers:
    headers: Any = message.headers()  # the library's type covers what producers may give; here it is always a list
    return tuple(headers) if headers else ()


def _library_error_name(error: PeerError) -> str:
    cause = error.__cause__
    return str(cause.args[0].name()) if isinstance(cause, KafkaException) else ""
