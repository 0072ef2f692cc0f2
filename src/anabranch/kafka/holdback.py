"""Keep what was fetched for a partition whose gate is closed, so that closing it throws nothing away.

librdkafka's own pause drops all that it has fetched ahead of a partition, to be fetched again later: with a small bound
a consumer received its topic eight times over. So a partition is paused in two stages. When its gate closes, records
that are already on their way are kept here, behind those that went out. Only when a partition has gathered its share of
the limit is it paused in the library too, and resumed there when all that was kept has gone out: with that distance a
pause in the library pays for itself.

An open gate has a window, too: no more goes out than control has said it has room for (see `window`); the rest of a
batch is kept, as if the gate were closed.

State: per owned partition whether its gate is closed, its window, what is kept, and whether the library was told to
pause. Rules: order within a partition never changes; a partition with something kept gets new records behind it, gate
open or not; kept records count against `records_max` and `bytes_max`, shared among the owned partitions; one batch may
pass them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from anabranch.kafka.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from anabranch.control.effects import Room
    from anabranch.core.records import Record
    from anabranch.core.work import TopicPartition


class Batch(NamedTuple):
    """Records of one partition in offset order, the position after them, and what they weigh."""

    partition: TopicPartition
    records: Sequence[Record]
    position: int
    bytes: int


@dataclass(slots=True)
class _Kept:
    window: Window
    closed: bool = False
    stopped: bool = False
    batches: deque[Batch] = field(default_factory=deque)
    records: int = 0
    bytes: int = 0

    @property
    def wanted(self) -> bool:
        """Whether records may go out."""
        return not self.closed and not self.window.is_shut


class Holdback:
    """What is kept back, per owned partition. Pure: it answers what to tell the library."""

    def __init__(self, records_max: int, bytes_max: int) -> None:
        """Keep at most so much in all."""
        self._records_max = max(1, records_max)
        self._bytes_max = max(1, bytes_max)
        self._kept: dict[TopicPartition, _Kept] = {}
        self._wanted: set[TopicPartition] = set()
        self._loaded: set[TopicPartition] = set()
        self.call = 1
        """The number of the call in which the next records go out: what is under way is counted by it."""

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin with these, gates open, nothing kept; the next call says so to control."""
        for partition in partitions:
            self.disown((partition,))
            self._kept[partition] = _Kept(Window(self.call))

    def disown(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these and what was kept of them."""
        for partition in partitions:
            self._kept.pop(partition, None)
            self._loaded.discard(partition)
            self._wanted.discard(partition)

    @property
    def any_open(self) -> bool:
        """Tell whether records of some partition are wanted."""
        return bool(self._wanted)

    @property
    def due(self) -> bool:
        """Tell whether something kept may go out."""
        return not self._wanted.isdisjoint(self._loaded)

    def told(self, call: int, rooms: Mapping[TopicPartition, Room] | None) -> None:
        """Take how much control has room for, with all calls up to this one taken; None: it does not say."""
        for partition in self._kept if rooms is None else rooms:
            kept = self._kept.get(partition)
            if kept is not None:
                kept.window.told(call, None if rooms is None else rooms[partition])
                self._look_at(partition, kept)

    def close(self, partitions: Iterable[TopicPartition]) -> None:
        """Close the gates of these."""
        for partition in partitions:
            kept = self._kept.get(partition)
            if kept is not None and not kept.closed:
                kept.closed = True
                self._look_at(partition, kept)

    def open(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Open the gates of these; answer those that the library is to resume, having nothing kept."""
        resumed = []
        for partition in partitions:
            kept = self._kept.get(partition)
            if kept is not None and kept.closed:
                kept.closed = False
                self._look_at(partition, kept)
                if kept.stopped and not kept.batches:
                    kept.stopped = False
                    resumed.append(partition)
        return resumed

    def passing(self, batch: Batch) -> Batch | None:
        """Give what of a batch may go out at once; the rest is kept."""
        kept = self._kept[batch.partition]
        if kept.closed or kept.batches:
            self.keep(batch)
            return None
        count = kept.window.admit(batch.records, self.call)
        self._look_at(batch.partition, kept)
        if count == len(batch.records):
            return batch
        going, rest = _split(batch, count)
        self.keep(rest)
        return going if count else None

    def keep(self, batch: Batch) -> None:
        """Keep a batch, whatever its gate says."""
        kept = self._kept[batch.partition]
        kept.batches.append(batch)
        kept.records += len(batch.records)
        kept.bytes += batch.bytes
        self._loaded.add(batch.partition)

    def overfull(self) -> list[TopicPartition]:
        """Answer the partitions that the library is to pause, having reached their share of the limit."""
        if not self._loaded:
            return []
        count = len(self._kept)
        records_share = max(1, self._records_max // count)
        bytes_share = max(1, self._bytes_max // count)
        stopped = []
        for partition in self._loaded:
            kept = self._kept[partition]
            if not kept.stopped and (kept.records >= records_share or kept.bytes >= bytes_share):
                kept.stopped = True
                stopped.append(partition)
        return stopped

    def release(self, records_max: int) -> tuple[list[Batch], list[TopicPartition]]:
        """Take what may go out, about so many records, in one batch per partition; answer also what to resume."""
        released: list[Batch] = []
        resumed: list[TopicPartition] = []
        room = records_max
        for partition in self._wanted & self._loaded:
            if room <= 0:
                break
            kept = self._kept[partition]
            batch = _taken(kept, room, self.call)
            self._look_at(partition, kept)
            room -= len(batch.records)
            released.append(batch)
            if not kept.batches:
                self._loaded.discard(partition)
                if kept.stopped:
                    kept.stopped = False
                    resumed.append(partition)
        return released, resumed

    def stopped(self) -> list[TopicPartition]:
        """Answer the partitions that the library was told to pause."""
        return [partition for partition, kept in self._kept.items() if kept.stopped]

    def statistics(self) -> dict[str, int]:
        """Answer how much is kept, and how many partitions are closed and stopped."""
        kept = list(self._kept.values())
        return {
            "held_records": sum(each.records for each in kept),
            "held_bytes": sum(each.bytes for each in kept),
            "partitions_closed": sum(each.closed for each in kept),
            "partitions_wanted": len(self._wanted),
            "partitions_stopped": sum(each.stopped for each in kept),
        }

    def check_invariants(self) -> None:
        """Assert what must hold."""
        assert self._wanted == {partition for partition, kept in self._kept.items() if kept.wanted}
        for partition, kept in self._kept.items():
            kept.window.check_invariants()
            assert (partition in self._loaded) == bool(kept.batches)
            assert kept.records == sum(len(batch.records) for batch in kept.batches)
            assert kept.bytes == sum(batch.bytes for batch in kept.batches)
            positions = [batch.position for batch in kept.batches]
            assert positions == sorted(positions)
            assert not kept.stopped or kept.closed or kept.batches, "stopped in the library for nothing"

    def _look_at(self, partition: TopicPartition, kept: _Kept) -> None:
        """Note whether records of a partition are wanted now."""
        if kept.wanted:
            self._wanted.add(partition)
        else:
            self._wanted.discard(partition)


def _taken(kept: _Kept, room: int, call: int) -> Batch:
    """Take batches until there is no more room, and make them one; the window of the partition is not shut."""
    taken = [kept.batches.popleft()]
    room -= len(taken[0].records)
    while kept.batches and room > 0:
        taken.append(kept.batches.popleft())
        room -= len(taken[-1].records)
    weight = sum(batch.bytes for batch in taken)
    records = taken[0].records if len(taken) == 1 else [record for batch in taken for record in batch.records]
    batch = Batch(taken[0].partition, records, taken[-1].position, weight)
    count = kept.window.admit(records, call)
    if count < len(records):
        batch, rest = _split(batch, count)
        kept.batches.appendleft(rest)
    kept.records -= len(batch.records)
    kept.bytes -= batch.bytes
    return batch


def _split(batch: Batch, count: int) -> tuple[Batch, Batch]:
    """Divide a batch behind so many records."""
    first, rest = batch.records[:count], batch.records[count:]
    weight = sum(len(record.value or b"") for record in first)
    position = first[-1].offset + 1 if first else rest[0].offset
    return (
        Batch(batch.partition, first, position, weight),
        Batch(batch.partition, rest, batch.position, batch.bytes - weight),
    )
