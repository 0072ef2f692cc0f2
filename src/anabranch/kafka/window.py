"""How much of a partition may be handed over: what control said it has room for, less what is on its way to it.

Control's bound per partition is exact (C5). But control learns of records when they have crossed to its thread, and the
source learns that a gate has closed when that has crossed back; with four batches under way, partitions once held half
as much again as their share. So control says, with every call that it has taken, how much more it has room for:
`told(call, room)` means "with all calls up to this one taken, there is room for so much". What was handed over in later
calls is subtracted, and no more goes out than is left. It is the window of TCP, with calls for sequence numbers.

Rules: nothing goes out before the call that told control about the partition was taken; a word about an earlier
ownership does not count (`since`). Nothing stalls: whenever the window is used up, either calls are under way, and the
answer to the last of them brings a new one, or there was no room at all, then the gate is closed, and opening it does.
One record may pass the bound of bytes, else a record larger than the bound would never go out.

Rejected: to give back what control has no room for, because what follows may have been taken meanwhile; to close gates
early by all that may be under way, because four batches are more than a share when there are many partitions.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from anabranch.control.effects import Room
from anabranch.control.sizes import record_sizes, total_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.core.records import Record


class _Handed(NamedTuple):
    call: int
    records: int
    bytes: int


class Window:
    """The window of one partition in one ownership."""

    __slots__ = ("_bytes", "_records", "_room", "_since", "_under_way")

    def __init__(self, since: int) -> None:
        """Begin closed, with the call that says whose the partition is."""
        self._since = since
        self._room: Room | None = Room(0, 0)
        """None: nobody limits it."""
        self._under_way: deque[_Handed] = deque()
        self._records = 0
        self._bytes = 0

    @property
    def is_shut(self) -> bool:
        """Tell whether nothing may go out."""
        room = self._room
        return room is not None and (room.records <= self._records or room.bytes <= self._bytes)

    def told(self, call: int, room: Room | None) -> None:
        """Take control's word, as of this call; None lifts the limit."""
        if call < self._since:
            return
        under_way = self._under_way
        while under_way and under_way[0].call <= call:
            _, records, size = under_way.popleft()
            self._records -= records
            self._bytes -= size
        self._room = room

    def admit(self, records: Sequence[Record], call: int) -> int:
        """Answer how many of these go out in this call, and count them as under way."""
        room = self._room
        if room is None or not records:
            return len(records)
        if self.is_shut:
            return 0
        count = min(len(records), room.records - self._records)
        going = records if count == len(records) else records[:count]
        size = total_size(going)
        if size > room.bytes - self._bytes:
            count, size = _within(record_sizes(going), room.bytes - self._bytes)
        self._under_way.append(_Handed(call, count, size))
        self._records += count
        self._bytes += size
        return count

    def check_invariants(self) -> None:
        """Assert what must hold."""
        assert self._records == sum(each.records for each in self._under_way)
        assert self._bytes == sum(each.bytes for each in self._under_way)
        calls = [each.call for each in self._under_way]
        assert calls == sorted(calls)
        assert not calls or calls[0] > self._since, "nothing goes out before control knows whose it is"


def _within(sizes: Sequence[int], room: int) -> tuple[int, int]:
    """Count how many fit, the last of them perhaps not wholly, and what they cost."""
    total = 0
    for index, size in enumerate(sizes):
        if total >= room:
            return index, total
        total += size
    return len(sizes), total
