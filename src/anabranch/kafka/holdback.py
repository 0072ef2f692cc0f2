"""Keep what was fetched for a partition whose gate is closed, so that closing it throws nothing away.

librdkafka's own pause drops all that it has fetched ahead of a partition, to be fetched again later: with a small bound
a consumer received its topic eight times over. So a partition is paused in two stages. When its gate closes, records
that are already on their way are kept here, behind those that went out. Only when a partition has gathered its share of
the limit is it paused in the library too, and resumed there when all that was kept has gone out: with that distance a
pause in the library pays for itself.

State: per owned partition whether its gate is closed, what is kept, and whether the library was told to pause. Rules:
order within a partition never changes; a partition with something kept gets new records behind it, gate open or not;
kept records count against `records_max` and `bytes_max`, shared among the owned partitions; one batch may pass them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    closed: bool = False
    stopped: bool = False
    batches: deque[Batch] = field(default_factory=deque)
    records: int = 0
    bytes: int = 0


class Holdback:
    """What is kept back, per owned partition. Pure: it answers what to tell the library."""

    def __init__(self, records_max: int, bytes_max: int) -> None:
        """Keep at most so much in all."""
        self._records_max = max(1, records_max)
        self._bytes_max = max(1, bytes_max)
        self._kept: dict[TopicPartition, _Kept] = {}
        self._open = 0
        self._loaded: set[TopicPartition] = set()

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin with these, gates open, nothing kept."""
        for partition in partitions:
            self.disown((partition,))
            self._kept[partition] = _Kept()
            self._open += 1

    def disown(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these and what was kept of them."""
        for partition in partitions:
            kept = self._kept.pop(partition, None)
            self._loaded.discard(partition)
            if kept is not None and not kept.closed:
                self._open -= 1

    @property
    def any_open(self) -> bool:
        """Tell whether records of some partition are wanted."""
        return self._open > 0

    @property
    def due(self) -> bool:
        """Tell whether something kept may go out."""
        return any(not self._kept[partition].closed for partition in self._loaded)

    def close(self, partitions: Iterable[TopicPartition]) -> None:
        """Close the gates of these."""
        for partition in partitions:
            kept = self._kept.get(partition)
            if kept is not None and not kept.closed:
                kept.closed = True
                self._open -= 1

    def open(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Open the gates of these; answer those that the library is to resume, having nothing kept."""
        resumed = []
        for partition in partitions:
            kept = self._kept.get(partition)
            if kept is not None and kept.closed:
                kept.closed = False
                self._open += 1
                if kept.stopped and not kept.batches:
                    kept.stopped = False
                    resumed.append(partition)
        return resumed

    def passes(self, batch: Batch) -> bool:
        """Tell whether a batch may go out at once; else it is kept."""
        kept = self._kept[batch.partition]
        if not kept.closed and not kept.batches:
            return True
        self.keep(batch)
        return False

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
        for partition in [each for each in self._loaded if not self._kept[each].closed]:
            if room <= 0:
                break
            kept = self._kept[partition]
            batch = _taken(kept, room)
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
            "partitions_stopped": sum(each.stopped for each in kept),
        }

    def check_invariants(self) -> None:
        """Assert what must hold."""
        assert self._open == sum(not each.closed for each in self._kept.values())
        for partition, kept in self._kept.items():
            assert (partition in self._loaded) == bool(kept.batches)
            assert kept.records == sum(len(batch.records) for batch in kept.batches)
            assert kept.bytes == sum(batch.bytes for batch in kept.batches)
            positions = [batch.position for batch in kept.batches]
            assert positions == sorted(positions)
            assert not kept.stopped or kept.closed or kept.batches, "stopped in the library for nothing"


def _taken(kept: _Kept, room: int) -> Batch:
    """Take batches until there is no more room, and make them one."""
    taken = [kept.batches.popleft()]
    room -= len(taken[0].records)
    while kept.batches and room > 0:
        taken.append(kept.batches.popleft())
        room -= len(taken[-1].records)
    weight = sum(batch.bytes for batch in taken)
    records = taken[0].records if len(taken) == 1 else [record for batch in taken for record in batch.records]
    kept.records -= len(records)
    kept.bytes -= weight
    return Batch(taken[0].partition, records, taken[-1].position, weight)
