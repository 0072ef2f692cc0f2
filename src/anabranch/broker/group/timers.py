"""When something is due, for all groups: a heap that is corrected late.

Every heartbeat moves a deadline further away. Moving it in the heap each time would cost more than the heartbeat,
so a later deadline is only noted; the heap learns of it when the old one comes up. Rule: each timer has a heap
entry at or before its deadline. Entries that lost their timer are skipped; when they outnumber the timers the heap
is rebuilt, so it stays in proportion to what is really waiting.
"""

from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Kind(IntEnum):
    """What a timer ends."""

    SESSION = 0
    PENDING = 1
    DELAY = 2
    REBALANCE = 3
    SYNC = 4
    CHECK = 5


class Timer(NamedTuple):
    """The name of a timer. Those of a group as a whole have no member, the coordinator's own has no group."""

    kind: Kind
    group_id: str = ""
    member_id: str = ""


class Timers:
    """Deadlines by name."""

    __slots__ = ("_deadlines", "_heap")

    _SLACK = 64
    """Entries without a timer that are tolerated beside twice the number of timers."""

    def __init__(self) -> None:
        self._deadlines: dict[Timer, float] = {}
        self._heap: list[tuple[float, Timer]] = []

    def __len__(self) -> int:
        """The number of timers that run."""
        return len(self._deadlines)

    def __contains__(self, timer: Timer) -> bool:
        """Whether this timer runs."""
        return timer in self._deadlines

    @property
    def entries(self) -> int:
        """The size of the heap, for those who watch its bound."""
        return len(self._heap)

    def groups(self) -> set[str]:
        """The groups that have timers."""
        return {timer.group_id for timer in self._deadlines}

    def set(self, timer: Timer, deadline: float) -> None:
        """Start or move a timer."""
        before = self._deadlines.get(timer)
        self._deadlines[timer] = deadline
        if before is None or deadline < before:
            heappush(self._heap, (deadline, timer))
            if len(self._heap) > 2 * len(self._deadlines) + self._SLACK:
                self._heap = [(when, name) for name, when in self._deadlines.items()]
                heapify(self._heap)

    def cancel(self, timer: Timer) -> None:
        """Stop a timer, if it runs."""
        self._deadlines.pop(timer, None)

    def next_deadline(self) -> float | None:
        """Say when the first timer is due."""
        while self._heap:
            when, timer = self._heap[0]
            deadline = self._deadlines.get(timer)
            if deadline == when:
                return when
            heappop(self._heap)
            if deadline is not None and deadline > when:
                heappush(self._heap, (deadline, timer))
        return None

    def take_due(self, now: float) -> Timer | None:
        """Stop and name the first timer that is due, one at a time: what it causes may cancel the others."""
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return None
        _, timer = heappop(self._heap)
        del self._deadlines[timer]
        return timer
