"""The words of a script for `ScriptedSource`, and the log that it plays on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.control.events import Event
from anabranch.core.records import Record

if TYPE_CHECKING:
    from anabranch.control.effects import Position
    from anabranch.core.records import Headers
    from anabranch.core.work import TopicPartition


@dataclass(frozen=True, slots=True)
class Write:
    """A record at the end of a partition's log."""

    partition: TopicPartition
    key: bytes | None
    value: bytes | None = b""
    headers: Headers = ()
    timestamp_ms: int = 0
    leader_epoch: int = 0


class _About:
    """A step about partitions."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.partitions = partitions

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.partitions))})"


class Give(_About):
    """Assign these: read from what was committed, else from the log's start."""


class Revoke(_About):
    """Let these drain until they are released or the grace is over, then take them."""


class Lose(_About):
    """Take these at once."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker that ends a transaction: an offset without a record."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Aborted:
    """Records of an aborted transaction and its marker: that many offsets that nobody gets to see, and one."""

    partition: TopicPartition
    records: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """Records that compaction removed: offsets without records up to `before`."""

    partition: TopicPartition
    before: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Retention moves the start of the log; what lies below is gone, read or not."""

    partition: TopicPartition
    log_start: int


@dataclass(frozen=True, slots=True)
class RefuseCommits:
    """Refuse the next commits, so many; `fenced`: as the group does with one who is no member any more."""

    count: int
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Await:
    """Go on only when so much is committed."""

    partition: TopicPartition
    committed: int


@dataclass(frozen=True, slots=True)
class Crash:
    """End at once, as kill -9 would: nothing is said, nothing is committed any more."""


Step = (
    Write | Give | Revoke | Lose | Marker | Aborted | Compacted | Trim | RefuseCommits | Await | Crash | Event
)  # an event is handed over as it is


def record(partition: TopicPartition, key: bytes | None, value: bytes | None = b"", *, leader_epoch: int = 0) -> Write:
    """Write a record: the short form."""
    return Write(partition, key, value, leader_epoch=leader_epoch)


@dataclass(slots=True)
class _Partition:
    start: int = 0
    end: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    committed: Position | None = None


class ScriptedLog:
    """What outlives a source: the partitions' records and the group's commits."""

    def __init__(self, topic_id: str = "scripted") -> None:
        self.topic_id = topic_id
        self.commits: list[tuple[TopicPartition, Position]] = []
        """Every commit that was taken, in order."""
        self._partitions: dict[TopicPartition, _Partition] = {}

    def partition(self, name: TopicPartition) -> _Partition:
        """Return a partition; it exists from the first time that it is asked for."""
        return self._partitions.setdefault(name, _Partition())

    def append(self, write: Write) -> None:
        """Add a record."""
        partition = self.partition(write.partition)
        partition.records[partition.end] = Record(
            *write.partition,
            partition.end,
            write.key,
            write.value,
            write.headers,
            write.timestamp_ms,
            write.leader_epoch,
        )
        partition.end += 1

    def skip(self, name: TopicPartition, offsets: int) -> None:
        """Add offsets that have no record."""
        self.partition(name).end += max(0, offsets)

    def trim(self, name: TopicPartition, log_start: int) -> None:
        """Remove what lies below."""
        partition = self.partition(name)
        partition.start = max(partition.start, log_start)
        partition.end = max(partition.end, log_start)
        for offset in [each for each in partition.records if each < log_start]:
            del partition.records[offset]

    def committed(self, name: TopicPartition) -> int | None:
        """Return what is committed for a partition."""
        position = self.partition(name).committed
        return None if position is None else position.position

    def commit(self, name: TopicPartition, position: Position) -> None:
        """Store a position."""
        self.partition(name).committed = position
        self.commits.append((name, position))

    def names(self) -> list[TopicPartition]:
        """Return the partitions that exist."""
        return list(self._partitions)
