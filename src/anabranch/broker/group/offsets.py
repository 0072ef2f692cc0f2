"""The committed offsets of one group.

`committed` holds what is durable: an offset enters it when the log has answered. `written` names the keys that the log
may hold, with the number of the store that touched each last, and so knows what `committed` cannot: which key to remove
when a topic comes back under another id, and which removals failed and must be tried again. Every committed partition
is in `written`; one that is only there is on its way to the log, or failed to get there, or waits for its tombstone.

Answers of the log may come in any order: an offset is replaced only by one of a later store.

Memory: one entry per partition that the group ever committed, and partitions are few: they are the broker's own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anabranch.broker.group.events import CommitOffset
from anabranch.broker.group.storage import Entry, OffsetKey, OffsetRecord, TopicPartition, encode


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed position as a fetch of offsets tells it. Compare `topic_id` before believing it."""

    topic: str
    partition: int
    position: int
    leader_epoch: int
    metadata: str | None
    commit_time_ms: int
    topic_id: bytes


class OffsetTable:
    """What a group has committed, and what of it the log may hold."""

    __slots__ = ("_group_id", "committed", "written")

    def __init__(self, group_id: str, restored: Mapping[TopicPartition, OffsetRecord] | None = None) -> None:
        self._group_id = group_id
        self.committed: dict[TopicPartition, tuple[OffsetRecord, int]] = {}
        self.written: dict[TopicPartition, tuple[bytes, int]] = {}
        for where, record in (restored or {}).items():
            self.committed[where] = (record, 0)
            self.written[where] = (record.topic_id, 0)

    def __bool__(self) -> bool:
        """Whether the group has offsets, here or perhaps on the log."""
        return bool(self.written)

    def write(self, records: Mapping[TopicPartition, OffsetRecord], sequence: int) -> tuple[Entry, ...]:
        """Note that these go to the log in the store of this number and give its entries."""
        entries: list[Entry] = []
        for where, record in records.items():
            before = self.written.get(where)
            if before is not None and before[0] != record.topic_id:
                entries.append((self._key(where, before[0]), None))
            entries.append((self._key(where, record.topic_id), encode(record)))
            self.written[where] = (record.topic_id, sequence)
        return tuple(entries)

    def apply(self, records: Mapping[TopicPartition, OffsetRecord], sequence: int) -> None:
        """Take what the log now holds."""
        for where, record in records.items():
            if where not in self.committed or self.committed[where][1] < sequence:
                self.committed[where] = (record, sequence)

    def drop(self, places: Iterable[TopicPartition], sequence: int) -> tuple[Entry, ...]:
        """Forget these now, and give the tombstones that make the log forget them in the store of this number."""
        entries: list[Entry] = []
        for where in places:
            self.committed.pop(where, None)
            topic_id, _ = self.written[where]
            entries.append((self._key(where, topic_id), None))
            self.written[where] = (topic_id, sequence)
        return tuple(entries)

    def dropped(self, sequence: int) -> None:
        """The tombstones of this store are durable: the log holds these keys no longer."""
        gone = [where for where, (_, last) in self.written.items() if last == sequence]
        for where in gone:
            del self.written[where]

    def expired(self, before_ms: int) -> list[TopicPartition]:
        """Name what was committed before this time."""
        return [where for where, (record, _) in self.committed.items() if record.commit_time_ms < before_ms]

    def beyond(self, log_ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetRecord]:
        """Give the offsets that lie beyond the end of their log, cut back to it."""
        found: dict[TopicPartition, OffsetRecord] = {}
        for where in self.committed.keys() & log_ends.keys():
            record = self.committed[where][0]
            if record.position > log_ends[where]:
                # The metadata speaks of offsets that are no more, and no leader epoch is known for the new place.
                found[where] = OffsetRecord(log_ends[where], -1, "", record.commit_time_ms, None, record.topic_id)
        return found

    def fetch(self, where: TopicPartition) -> CommittedOffset | None:
        """Give the committed offset of a partition."""
        found = self.committed.get(where)
        if found is None:
            return None
        record = found[0]
        return CommittedOffset(
            *where, record.position, record.leader_epoch, record.metadata, record.commit_time_ms, record.topic_id
        )

    def entries(self) -> Iterable[tuple[bytes, bytes]]:
        """Give what is durable, as the log holds it."""
        for where, (record, _) in self.committed.items():
            yield self._key(where, record.topic_id), encode(record)

    def _key(self, where: TopicPartition, topic_id: bytes) -> bytes:
        return encode(OffsetKey(self._group_id, topic_id, *where))


def record_of(offset: CommitOffset, now_ms: int) -> OffsetRecord:
    """Give the stored value of a commit."""
    return OffsetRecord(offset.position, offset.leader_epoch, offset.metadata, now_ms, None, offset.topic_id)


def is_too_long(metadata: str | None, units_max: int) -> bool:
    """Whether this text has more UTF-16 units than allowed; characters beyond U+FFFF count twice."""
    if metadata is None or 2 * len(metadata) <= units_max:
        return False
    return len(metadata) + sum(character > "\uffff" for character in metadata) > units_max
