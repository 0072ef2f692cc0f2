"""Says when so many records die that something else must be wrong.

Counted over what is settled, in the order of settling: the records that died among the last `window`, and those that
died in a row. A letter counts when it is decided on, before it is acknowledged: the one that would break a limit is not
written. A window that is not full yet is taken as full of records that lived, so that the first one that dies is not
100 %; a start at which everything dies is what `run_max` is for.

Those that live cost nothing here but a counter: only the places of deaths are kept, `window` at the most.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.policies import DeadLetters


class DeathLimits:
    """The limits of `.dead_letters(…)` for this process."""

    __slots__ = ("_deaths", "_place", "_policy", "run")

    def __init__(self, policy: DeadLetters) -> None:
        self._policy = policy
        self._place = 0
        self._deaths: deque[int] = deque()
        self.run = 0

    def lived(self, count: int) -> None:
        """Take records that were settled otherwise."""
        self._place += count
        self.run = 0

    def died(self) -> str | None:
        """Take one that is to die; answer which limit it breaks, as a sentence: then it must not be written."""
        policy = self._policy
        deaths = self._deaths
        while deaths and deaths[0] <= self._place + 1 - policy.window:
            deaths.popleft()
        if self.run + 1 > policy.run_max:
            return f"more than {policy.run_max} records in a row would be dead letters (run_max)"
        if len(deaths) + 1 > policy.ratio_max * policy.window:
            share = f"{policy.ratio_max:.0%} of the last {policy.window}"
            return f"more than {share} records would be dead letters (ratio_max)"
        self.run += 1
        self._place += 1
        deaths.append(self._place)
        return None

    def check_invariants(self) -> None:
        """Assert all that must hold."""
        assert len(self._deaths) <= self._policy.window, "no more deaths are remembered than the window has places"
        assert self.run <= self._policy.run_max, "a run ends or halts"
