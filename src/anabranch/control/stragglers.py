"""Keeps the records that stay incomplete far behind the others, in memory that follows their number.

Three arrays in the order of arrival: ordinal, offset, state. They hold every incomplete record, and of each run of
settled ones between them only the first and the last: enough to tell where the run begins and ends. So n stragglers
cost at most 3 n + 2 entries, however many records were settled between them. An ordinal is found by bisection, which
is slower than the window's index, and rare: a record gets here when a hundred thousand others came after it.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from anabranch.core.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INCOMPLETE: Final = 0
SETTLED: Final = 1

_SETTLED_RUN = re.compile(rb"\x01+")
_INTERIOR = re.compile(rb"(?<=\x01)\x01+(?=\x01)")


def settled_runs(states: bytearray, offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Give the first and the last offset of each run of settled entries."""
    for run in _SETTLED_RUN.finditer(states):
        yield offsets[run.start()], offsets[run.end() - 1]


class Stragglers:
    """What is incomplete below the tracker's window."""

    __slots__ = ("_head", "_offsets", "_ordinals", "_states", "incomplete")

    def __init__(self) -> None:
        self._ordinals = array("q")
        self._offsets = array("q")
        self._states = bytearray()
        self._head = 0
        self.incomplete = 0

    def __len__(self) -> int:
        return len(self._states)

    def take(self, ordinal: int, states: bytearray, offsets: Sequence[int]) -> None:
        """Add entries with consecutive ordinals above all others, and keep of all only what is needed."""
        self._ordinals.extend(range(ordinal, ordinal + len(states)))
        self._offsets.extend(offsets)
        self._states.extend(states)
        self.incomplete += states.count(INCOMPLETE)
        self._thin_out()

    def settle(self, ordinal: int) -> None:
        """Mark one as settled."""
        index = self._index(ordinal)
        self._states[index] = SETTLED
        self.incomplete -= 1

    def first(self) -> tuple[int, int] | None:
        """Answer the ordinal and the offset of the lowest incomplete one."""
        if not self.incomplete:
            return None
        self._head = self._states.index(INCOMPLETE, self._head)
        return self._ordinals[self._head], self._offsets[self._head]

    def offset_of(self, ordinal: int) -> int:
        """Answer the offset of an incomplete one."""
        return self._offsets[self._index(ordinal)]

    def offsets(self) -> Sequence[int]:
        """Answer the offsets that are held, rising."""
        return self._offsets

    def part_ahead(self) -> tuple[bytearray, array[int]]:
        """Answer states and offsets from the lowest incomplete one on; nothing when there is none."""
        start = len(self) if self.first() is None else self._head
        return self._states[start:], self._offsets[start:]

    def clear(self) -> None:
        """Forget all, when none is incomplete."""
        assert not self.incomplete, "an incomplete record is never forgotten"
        if self._states:
            self._ordinals, self._offsets, self._states, self._head = array("q"), array("q"), bytearray(), 0

    def check_invariants(self, below: int) -> None:
        """Assert all that must hold; all ordinals are below the window's."""
        ordinals = self._ordinals
        assert len(ordinals) == len(self._offsets) == len(self._states), "three parallel arrays"
        assert all(map(int.__lt__, ordinals, ordinals[1:])), "ordinals rise"
        assert not ordinals or ordinals[-1] < below, "the window is above"
        assert self._states.count(INCOMPLETE) == self.incomplete, "incomplete ones are counted"
        assert INCOMPLETE not in self._states[: self._head], "no incomplete record is passed over"

    def _index(self, ordinal: int) -> int:
        index = bisect_left(self._ordinals, ordinal)
        if index == len(self._ordinals) or self._ordinals[index] != ordinal or self._states[index]:
            raise InternalError(f"ordinal {ordinal} is not incomplete: it was settled before, or never arrived")
        return index

    def _thin_out(self) -> None:
        """Drop the settled prefix, and what lies inside a run of settled ones."""
        start = self._states.find(INCOMPLETE)
        if start < 0:
            self.clear()
            return
        ordinals, offsets, states = array("q"), array("q"), bytearray()
        cuts = [run.span() for run in _INTERIOR.finditer(self._states, start)]
        for begin, end in zip([start, *(cut[1] for cut in cuts)], [*(cut[0] for cut in cuts), len(self)], strict=True):
            ordinals.extend(self._ordinals[begin:end])
            offsets.extend(self._offsets[begin:end])
            states.extend(self._states[begin:end])
        self._ordinals, self._offsets, self._states, self._head = ordinals, offsets, states, 0
