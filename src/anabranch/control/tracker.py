"""Says what may be committed of one assignment, by keeping what is incomplete.

State. Records get *ordinals* in the order of their arrival: consecutive integers from 0, never used twice. A byte per
ordinal says whether its record is settled, an array beside it has the offset. `committable` is the offset of the first
incomplete byte, found with `bytearray.find`; with none, it is `position`. Nothing is ever computed as "last + 1", so
holes need no code: an offset that never arrived is not in the window and cannot hold anything back.

Rules that hold:

- committable ≤ position; both only rise. A consumer that goes back needs a new epoch, so a new tracker.
- A settled record stays settled. Settling twice, or settling what never came, is an InternalError and changes nothing.
- Memory follows what is incomplete, not how long the first of them has been so. The settled prefix is cut off, each
  byte moved once on average. Behind a blocker that does not end, the older half of a window of `WINDOW_MAX` is handed
  to `Stragglers`: they keep the incomplete records and of the settled runs between them only the ends.

Settling is one comparison and one store; where the prefix ends is looked up when someone asks. Rejected: a sorted list
of what is incomplete (an eighth of the speed); a queue of arrivals and a set of settled ones (faster in batches, but
114 bytes for a record settled ahead instead of 9, and blind to one settled twice); moving the head in `settle` (a
`find` per record instead of one per batch). `benchmarks/tracker.py` has the numbers.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import islice
from operator import ge
from typing import TYPE_CHECKING

from anabranch.control.stragglers import INCOMPLETE, SETTLED, Stragglers, settled_runs
from anabranch.core.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WINDOW_MAX = 131_072
"""Behind a blocker the window is thinned out at this length: 1.2 MB, and above the default bound of records held."""
TRIM_PART = 32
"""A settled prefix is cut off when it is this part of `WINDOW_MAX` long (4,096) and half of the window."""


@dataclass(frozen=True, slots=True)
class TrackerStatistics:
    """A snapshot of one assignment's progress."""

    position: int
    committable: int
    arrived: int
    settled: int
    incomplete: int
    ahead: int
    held: int
    """Entries in memory: about nine bytes each, seventeen for those far behind."""


class Tracker:
    """What is incomplete of one assignment. The caller names records by the ordinals that `arrived` gave out."""

    __slots__ = ("_base", "_head", "_offsets", "_position", "_settled", "_states", "_stragglers", "_window_max")

    def __init__(self, position: int, *, window_max: int = WINDOW_MAX) -> None:
        """Begin at a position with nothing incomplete."""
        self._position = position
        self._states = bytearray()
        self._offsets = array("q")
        self._base = 0
        """The ordinal of the window's first entry. What is below is settled, or among the stragglers."""
        self._head = 0
        """No entry of the window below this index is incomplete; the first that is may be further up."""
        self._settled = 0
        self._stragglers = Stragglers()
        self._window_max = window_max

    def __repr__(self) -> str:
        return (
            f"<Tracker committable={self.committable} position={self._position}"
            f" incomplete={self.incomplete} ahead={self.ahead}>"
        )

    def arrived(self, offsets: Sequence[int]) -> int:
        """Take these offsets, which rise strictly from at least `position`; answer the ordinal of the first."""
        first = self._base + len(self._states)
        if offsets:
            if offsets[0] < self._position or any(map(ge, offsets, islice(offsets, 1, None))):
                raise InternalError(f"offsets from {offsets[0]} do not rise from {self._position}: begin a new epoch")
            self._make_room()
            self._offsets.extend(array("q", offsets))
            self._states.extend(bytes(len(offsets)))
            self._position = offsets[-1] + 1
        return first

    def settle(self, ordinal: int) -> None:
        """Mark one record as settled."""
        index = ordinal - self._base
        if index < 0:
            self._stragglers.settle(ordinal)
        else:
            states = self._states
            try:
                if states[index]:
                    raise _not_incomplete(ordinal)
            except IndexError:
                raise _not_incomplete(ordinal) from None
            states[index] = SETTLED
        self._settled += 1

    def settle_many(self, ordinals: Sequence[int]) -> None:
        """Mark records as settled, in any order; several times faster than one by one.

        If one of them is not incomplete, those before it are settled and the rest are not.
        """
        states, base = self._states, self._base
        try:
            for ordinal in ordinals:
                index = ordinal - base
                if index < 0:
                    self._stragglers.settle(ordinal)
                elif states[index]:
                    raise _not_incomplete(ordinal)
                else:
                    states[index] = SETTLED
        except (IndexError, InternalError):
            window = states.count(SETTLED)
            self._settled = base - self._stragglers.incomplete + window
            raise _not_incomplete(ordinal) from None
        self._settled += len(ordinals)

    def moved(self, position: int) -> None:
        """Take the consumer's own position, which passes holes at the end."""
        if position < self._position:
            raise InternalError(f"the position went back from {self._position} to {position}: begin a new epoch")
        self._position = position

    @property
    def position(self) -> int:
        """The next offset to be read."""
        return self._position

    @property
    def committable(self) -> int:
        """The lowest incomplete offset, or `position` when there is none."""
        if (straggler := self._stragglers.first()) is not None:
            return straggler[1]
        head = self._advance()
        return self._offsets[head] if head < len(self._offsets) else self._position

    @property
    def blocker_ordinal(self) -> int | None:
        """The ordinal of the lowest incomplete record, if any; it holds something back only while `ahead` is not 0."""
        if (straggler := self._stragglers.first()) is not None:
            return straggler[0]
        head = self._advance()
        return self._base + head if head < len(self._states) else None

    @property
    def ahead(self) -> int:
        """How many records are settled above committable."""
        ordinal = self.blocker_ordinal
        return 0 if ordinal is None else self._settled - ordinal

    @property
    def incomplete(self) -> int:
        """How many records are not settled."""
        return self._base + len(self._states) - self._settled

    def offset_of(self, ordinal: int) -> int:
        """Answer the offset of an incomplete record. What is settled may have been forgotten."""
        index = ordinal - self._base
        if index < 0:
            return self._stragglers.offset_of(ordinal)
        if index >= len(self._offsets):
            raise _not_incomplete(ordinal)
        return self._offsets[index]

    def settled_ahead(self) -> Iterator[tuple[int, int]]:
        """Give the runs of settled offsets above committable, as first and last, rising.

        A run is of records that arrived one after another, so it may span holes. That says nothing untrue: a hole has
        no record, and never gets one (compaction and aborts only take away; what is written after a truncation has a
        higher leader epoch, which a run is checked against).
        """
        if self.ahead == 0:
            return iter(())
        states, offsets = self._stragglers.part_ahead()
        head = self._advance() if not states else 0
        return settled_runs(states + self._states[head:], offsets + self._offsets[head:])

    def statistics(self) -> TrackerStatistics:
        """Answer a snapshot."""
        return TrackerStatistics(
            position=self._position,
            committable=self.committable,
            arrived=self._base + len(self._states),
            settled=self._settled,
            incomplete=self.incomplete,
            ahead=self.ahead,
            held=len(self._states) + len(self._stragglers),
        )

    def check_invariants(self) -> None:
        """Assert all that must hold."""
        self._stragglers.check_invariants(below=self._base)
        states, offsets = self._states, self._offsets
        assert len(states) == len(offsets), "one offset per state"
        assert states.count(SETTLED) + states.count(INCOMPLETE) == len(states), "a record is settled or incomplete"
        assert INCOMPLETE not in states[: self._head], "no incomplete record is passed over"
        assert self._settled == self._base - self._stragglers.incomplete + states.count(SETTLED), "settled is counted"
        held = [*self._stragglers.offsets(), *offsets]
        assert all(map(int.__lt__, held, held[1:])), "offsets rise in the order of arrival"
        assert not held or held[-1] < self._position, "the position is above all that arrived"
        assert self.committable <= self._position, "nothing unread is committable"
        assert self.ahead >= 0, "only settled records are ahead"

    def _advance(self) -> int:
        """Move the head to the window's first incomplete entry, or its end."""
        head = self._states.find(INCOMPLETE, self._head)
        self._head = len(self._states) if head < 0 else head
        return self._head

    def _make_room(self) -> None:
        """Cut off the settled prefix, or thin out the older half of a window that a blocker has let grow."""
        stragglers = self._stragglers
        if not stragglers.incomplete:
            stragglers.clear()
            head = self._advance()
            if head * TRIM_PART >= self._window_max and head * 2 >= len(self._states):
                self._cut(head)
        length = len(self._states)
        if length >= max(self._window_max, 2 * len(stragglers), 2 * self.incomplete):
            half = length // 2
            stragglers.take(self._base, self._states[:half], self._offsets[:half])
            self._cut(half)

    def _cut(self, length: int) -> None:
        del self._states[:length]
        del self._offsets[:length]
        self._base += length
        self._head = max(0, self._head - length)


def _not_incomplete(ordinal: int) -> InternalError:
    return InternalError(f"ordinal {ordinal} is not incomplete: it was settled before, or never arrived")
