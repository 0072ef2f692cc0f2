"""One step as the scheduler sees it: the lanes that are ready for it, and how many calls of it run."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from anabranch.control.breaker import StepBreaker
from anabranch.control.lanes import LaneState

if TYPE_CHECKING:
    from anabranch.control.lanes import Lane
    from anabranch.control.policy import StepPolicy


class StepQueue:
    """The ready lanes of one step, of all partitions, in the order in which they became ready."""

    __slots__ = (
        "breaker",
        "concurrency",
        "done",
        "failed",
        "favoured",
        "following",
        "index",
        "name",
        "observed",
        "passed",
        "policy",
        "ready",
        "retries",
        "running",
        "waiting",
    )

    def __init__(self, index: int, policy: StepPolicy) -> None:
        self.index = index
        self.name = policy.name
        self.policy = policy
        self.concurrency = policy.concurrency
        self.following: StepQueue | None = None
        """The step after this one; None for the last."""
        self.breaker = StepBreaker(policy.breaker)
        self.ready: deque[Lane] = deque()
        """A lane stands here once for every time it became ready; `Lane.passed` says how many of these are void."""
        self.passed = 0
        """How many entries of `ready` are void."""
        self.running = 0
        """Calls that really run, those of old epochs included."""
        self.waiting = 0
        """Lanes whose head waits for its next attempt."""
        self.favoured = 0
        """How many blockers in a row went before others."""
        self.done = 0
        """Calls that ended well, filtered ones left out."""
        self.observed = 0
        """How many of these the breaker knows of."""
        self.failed = 0
        self.retries = 0

    def pass_over(self, lane: Lane) -> None:
        """Void the entry of a lane that is ready no longer, or that goes before its turn."""
        lane.passed += 1
        self.passed += 1

    def purge(self) -> None:
        """Forget the entries of lanes that have ended."""
        alive = [
            lane for lane in self.ready if lane.state is not LaneState.ENDED and lane.state is not LaneState.ORPHANED
        ]
        self.ready = deque(alive)
        self.passed = sum(lane.passed for lane in set(alive))

    @property
    def ready_count(self) -> int:
        """How many lanes are ready."""
        return len(self.ready) - self.passed
