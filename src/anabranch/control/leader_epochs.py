"""Remembers under which leader epoch the records of one assignment were written.

State: the offsets at which the epoch changed, and the epochs. In a log the epoch never falls from one offset to the
next, so the first and the last record of a batch say whether anything changed, and a batch costs one comparison. Should
a log break that rule, a record gets a wrong epoch here, does not match when it is read again, and is repeated: the safe
side. The same holds when changes are forgotten because there are more than `CHANGES_MAX`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from anabranch.core.records import Record

UNKNOWN = -1
CHANGES_MAX = 1024


class Run(NamedTuple):
    """Settled offsets from `first` to `last`, all of one leader epoch. It may span holes."""

    first: int
    last: int
    leader_epoch: int


class LeaderEpochs:
    """The leader epoch of each offset that arrived."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._epochs: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def arrived(self, records: Sequence[Record]) -> None:
        """Take a batch of records with rising offsets."""
        if not records:
            return
        current = self._epochs[-1] if self._epochs else UNKNOWN
        if records[0].leader_epoch == records[-1].leader_epoch == current:
            return
        for record in records:
            if record.leader_epoch != current:
                current = record.leader_epoch
                self._starts.append(record.offset)
                self._epochs.append(current)
        del self._starts[:-CHANGES_MAX], self._epochs[:-CHANGES_MAX]

    def at(self, offset: int) -> int:
        """Answer the leader epoch of an offset that arrived, or of the last record below a hole; -1 if unknown."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else UNKNOWN

    def split(self, runs: Iterable[tuple[int, int]]) -> Iterator[Run]:
        """Give the same offsets, which rise, as runs of one leader epoch each."""
        starts, epochs = self._starts, [UNKNOWN, *self._epochs]
        index = 0
        for first, last in runs:
            begin = first
            while index < len(starts) and starts[index] <= last:
                if starts[index] > begin:
                    yield Run(begin, starts[index] - 1, epochs[index])
                    begin = starts[index]
                index += 1
            yield Run(begin, last, epochs[index])

    def forget(self, below: int) -> None:
        """Drop changes that no offset from `below - 1` on depends on."""
        index = bisect_right(self._starts, below - 1) - 1
        if index > 0:
            del self._starts[:index], self._epochs[:index]

    def check_invariants(self) -> None:
        """Assert all that must hold."""
        assert len(self._starts) == len(self._epochs) <= CHANGES_MAX, "one epoch per change, and not too many"
        assert all(map(int.__lt__, self._starts, self._starts[1:])), "changes rise"
        assert all(map(int.__ne__, self._epochs, self._epochs[1:])), "a change changes something"
