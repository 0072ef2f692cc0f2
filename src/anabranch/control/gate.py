"""Closes and opens the intake of one partition, with hysteresis.

The bound of the process is shared evenly among the partitions it has, so that one of them cannot take all of it. What
counts is everything that was taken in and is not settled: queued, waiting, running, being written. A share is never
smaller than about one fetch: a gate that closes on every fetch makes the client throw away and fetch again what it had
prefetched. So above 100 partitions the bound is `SHARE_RECORDS_MIN` each and no longer the process's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.policies import Gate

SHARE_RECORDS_MIN = 500
SHARE_BYTES_MIN = 512 * 1024


class PartitionGate:
    """The gate of one partition. `observe` answers whether it has just closed (True) or opened (False)."""

    __slots__ = ("_policy", "bytes_max", "is_closed", "records_max")

    def __init__(self, policy: Gate, partitions: int) -> None:
        self._policy = policy
        self.is_closed = False
        self.records_max = policy.records_max
        self.bytes_max = policy.bytes_max
        self.share(partitions)

    def share(self, partitions: int) -> None:
        """Take this partition's part of the bound when so many partitions share it."""
        policy = self._policy
        self.records_max = max(policy.records_max // partitions, min(policy.records_max, SHARE_RECORDS_MIN))
        self.bytes_max = max(policy.bytes_max // partitions, min(policy.bytes_max, SHARE_BYTES_MIN))

    def observe(self, records: int, size: int) -> bool | None:
        """Look at what is held now; None when nothing changes."""
        load = max(records / self.records_max, size / self.bytes_max)
        if self.is_closed:
            if load > self._policy.open_at:
                return None
        elif load < self._policy.close_at:
            return None
        self.is_closed = not self.is_closed
        return self.is_closed
