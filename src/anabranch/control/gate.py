"""Closes and opens the intake of one partition, with hysteresis.

The bound of the process is shared evenly among the partitions it has, so that one of them cannot take all of it. What
counts is everything that was taken in and is not settled: queued, waiting, running, being written. A share is never
smaller than about one fetch: a gate that closes on every fetch makes the client throw away and fetch again what it had
prefetched. So above 100 partitions the bound is `SHARE_RECORDS_MIN` each and no longer the process's own.

A closed gate is heard late: what is under way comes all the same. So `room` says how much may still come, and the
source hands over no more (see `kafka.window`). With it the bound is exact: a partition holds at most its share of
records, and of bytes at most its share and one record. Only when partitions come and shares shrink may one hold more
than its new share: it takes nothing until that is settled.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from anabranch.control.effects import Room

if TYPE_CHECKING:
    from anabranch.core.policies import Gate

SHARE_RECORDS_MIN = 500
SHARE_BYTES_MIN = 512 * 1024


class PartitionGate:
    """The gate of one partition. `observe` answers whether it has just closed (True) or opened (False)."""

    __slots__ = ("_bytes_full", "_policy", "_records_full", "bytes_max", "is_closed", "records_max")

    def __init__(self, policy: Gate, partitions: int) -> None:
        self._policy = policy
        self.is_closed = False
        self.records_max = self._records_full = policy.records_max
        self.bytes_max = self._bytes_full = policy.bytes_max
        self.share(partitions)

    def share(self, partitions: int) -> None:
        """Take this partition's part of the bound when so many partitions share it."""
        policy = self._policy
        self.records_max = max(policy.records_max // partitions, min(policy.records_max, SHARE_RECORDS_MIN))
        self.bytes_max = max(policy.bytes_max // partitions, min(policy.bytes_max, SHARE_BYTES_MIN))
        self._records_full = ceil(policy.close_at * self.records_max)
        self._bytes_full = ceil(policy.close_at * self.bytes_max)

    def room(self, records: int, size: int) -> Room:
        """Say how much more may come in beside what is held; when so much has come, the gate closes."""
        return Room(0, 0) if self.is_closed else Room(self._records_full - records, self._bytes_full - size)

    def observe(self, records: int, size: int) -> bool | None:
        """Look at what is held now; None when nothing changes."""
        if self.is_closed:
            open_at = self._policy.open_at
            if records > open_at * self.records_max or size > open_at * self.bytes_max:
                return None
        elif records < self._records_full and size < self._bytes_full:
            return None
        self.is_closed = not self.is_closed
        return self.is_closed
