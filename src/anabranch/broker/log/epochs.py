"""Which leader epoch wrote which offsets: the answer to OffsetForLeaderEpoch (KIP-101, KIP-320).

A list of (epoch, first offset), both rising. A batch whose epoch is larger than the last one starts a new entry. The
list needs no file of its own: it travels in the producer snapshot, and batches above that are replayed at start.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class EpochStart(NamedTuple):
    """The first offset that an epoch wrote."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one partition."""

    __slots__ = ("_starts", "latest")

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)
        self.latest = self._starts[-1].epoch if self._starts else -1

    def observe(self, epoch: int, base_offset: int) -> None:
        """Note that a batch of this epoch is at this offset."""
        if epoch > self.latest:
            self._starts.append(EpochStart(epoch, base_offset))
            self.latest = epoch

    def snapshot(self) -> list[EpochStart]:
        """Give a copy of the list."""
        return list(self._starts)

    def end_offset(self, epoch: int, leader_epoch: int, log_end: int) -> tuple[int, int]:
        """Give the largest epoch not above `epoch` and where it ends; (-1, -1) for one that is not known yet.

        The current leader's epoch counts from log_end on as long as it has written nothing. An epoch older than all
        that is known ends where the oldest known one starts.
        """
        starts = self._starts
        if leader_epoch > self.latest:
            starts = [*starts, EpochStart(leader_epoch, log_end)]
        if not starts or epoch < 0 or epoch > starts[-1].epoch:
            return -1, -1
        if epoch == starts[-1].epoch:
            return epoch, log_end
        above = bisect_right(starts, epoch, key=lambda start: start.epoch)
        found = starts[above - 1].epoch if above else epoch
        return found, starts[above].start_offset
