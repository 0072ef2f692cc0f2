"""The lease of a member: permission to begin calls, which the driver's answers renew and which ends by itself.

A report that was sent at t and answered renews the lease until t + `duration_s`, by the member's own monotonic clock:
the driver was alive at some moment after t, so its clock and the way of the answer do not matter. Reports that were
never answered renew nothing. Whoever looks (`holds`) gives the time.
"""

from __future__ import annotations

from typing import Final

DURATION_S: Final = 2.0
REPORT_S: Final = 0.5
"""How often a member reports: three may be lost before the lease is."""
SENT_MAX: Final = 64
"""How many unanswered reports are remembered: far more than a lease has."""


class Lease:
    """One member's permission to begin calls. Begins without it."""

    __slots__ = ("_sent", "duration_s", "until")

    def __init__(self, duration_s: float = DURATION_S) -> None:
        """Hold nothing yet."""
        self.duration_s = duration_s
        self.until = float("-inf")
        self._sent: dict[int, float] = {}

    def sent(self, number: int, now: float) -> None:
        """Note that a report leaves."""
        self._sent[number] = now
        if len(self._sent) > SENT_MAX:
            del self._sent[next(iter(self._sent))]

    def answered(self, number: int) -> None:
        """Renew the lease from the moment at which the answered report was sent; forget it and older ones."""
        sent_at = self._sent.get(number)
        if sent_at is None:
            return  # of another connection, or far too old
        self.until = max(self.until, sent_at + self.duration_s)
        self._sent = {each: at for each, at in self._sent.items() if each > number}

    def holds(self, now: float) -> bool:
        """Tell whether calls may begin."""
        return now < self.until
