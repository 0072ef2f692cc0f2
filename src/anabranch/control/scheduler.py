"""Decides which ready lanes begin a call, and wakes those whose head has waited long enough.

Lanes go in the order in which they became ready, whatever their partition: a lane with much work goes to the back after
each record, so nobody starves. Before that order comes one thing: the lane of a partition's blocker, because it holds
the commit back. To find it costs the same however many keys there are: the tracker knows the ordinal, the assignment
the task, the task its lane. Its entry in the queue is voided, not searched for. Blockers of `PARTITIONS_LOOKED_AT`
partitions are looked at per step and dispatch, in turns, and after `FAVOURS_MAX` in a row someone else goes first.

Each step has its own bound of running calls, so steps do not take anything from one another; later ones are handed out
first, so that records leave before others come in.

Waiting lanes are a heap by due time. A waiting lane holds nothing but its place in memory.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from anabranch.control.lanes import Lane, LaneState
from anabranch.control.step_queue import StepQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.control.assignment import Assignment
    from anabranch.control.policy import StepPolicy
    from anabranch.core.work import Task

FAVOURS_MAX = 8
PARTITIONS_LOOKED_AT = 8

READY, RUNNING, WAITING = LaneState.READY, LaneState.RUNNING, LaneState.WAITING


class Scheduler:
    """The steps with their ready lanes, and the lanes that wait."""

    __slots__ = ("_later_first", "_sequence", "rotation", "steps", "waiting")

    def __init__(self, policies: Sequence[StepPolicy]) -> None:
        self.steps = [StepQueue(index, policy) for index, policy in enumerate(policies)]
        for step, following in zip(self.steps, self.steps[1:], strict=False):
            step.following = following
        self._later_first = self.steps[::-1]
        self.waiting: list[tuple[float, int, Lane]] = []
        self._sequence = 0
        self.rotation: deque[Assignment] = deque()
        """The partitions that have records, in the order in which their blockers are looked at."""

    # Waiting

    def wait(self, lane: Lane, due: float) -> None:
        """Let the lane's head be tried again at this time."""
        lane.state = WAITING
        lane.due = due
        lane.step.waiting += 1
        self._sequence += 1
        heappush(self.waiting, (due, self._sequence, lane))

    def wake(self, now: float) -> None:
        """Make ready what has waited long enough."""
        waiting = self.waiting
        while waiting and waiting[0][0] <= now:
            lane = heappop(waiting)[2]
            lane.step.waiting -= 1
            self.make_ready(lane)

    def make_ready(self, lane: Lane) -> None:
        """Put the lane at the end of those that are ready."""
        lane.state = READY
        lane.step.ready.append(lane)

    def next_deadline(self) -> float | None:
        """Say when a lane wakes up, or a breaker may be probed."""
        due = self.waiting[0][0] if self.waiting else None
        for step in self.steps:
            if not step.breaker.is_closed and step.breaker.probe is None and step.ready_count:
                due = step.breaker.probe_at if due is None else min(due, step.breaker.probe_at)
        return due

    def purge(self) -> None:
        """Forget lanes that have ended or are stranded, wherever they stand."""
        for step in self.steps:
            step.purge()
            step.waiting = 0
        self.waiting = [entry for entry in self.waiting if entry[2].state is WAITING]
        heapify(self.waiting)
        for _, _, lane in self.waiting:
            lane.step.waiting += 1

    # Dispatch

    def dispatch(self, now: float, tasks: list[Task]) -> None:
        """Add all tasks whose calls may begin now."""
        for step in self._later_first:
            free = step.concurrency - step.running
            if free > 0 and len(step.ready) > step.passed:
                if step.breaker.is_closed:
                    if len(step.ready) - step.passed > free:
                        free -= self._favour(step, free, now, tasks)
                    self._take(step, free, now, tasks)
                elif step.breaker.may_probe(now):
                    # Blockers are not favoured: one that always fails would keep the breaker open for everyone.
                    self._take(step, 1, now, tasks)
                    step.breaker.begin_probe(tasks[-1])

    def _take(self, step: StepQueue, free: int, now: float, tasks: list[Task]) -> None:
        """Begin the calls of at most so many lanes, in the order in which they became ready."""
        before = len(tasks)
        ready = step.ready
        is_first_step = not step.index
        while free and ready:
            lane = ready.popleft()
            if lane.passed:
                lane.passed -= 1
                step.passed -= 1
                continue
            lane.state = RUNNING
            task = lane.head
            task.begun_at = now
            if is_first_step and task.attempt == 0:
                task.first_begun_at = now
            task.attempt += 1
            tasks.append(task)
            free -= 1
            step.favoured = 0
        step.running += len(tasks) - before

    def _favour(self, step: StepQueue, free: int, now: float, tasks: list[Task]) -> int:
        """Begin the calls of blockers before their turn; answer of how many."""
        budget = min(free, FAVOURS_MAX - step.favoured)
        if budget <= 0:
            return 0
        taken = 0
        rotation = self.rotation
        for _ in range(min(PARTITIONS_LOOKED_AT, len(rotation))):
            task = rotation[0].blocker()
            rotation.rotate(-1)
            if task is None or task.step != step.index or task.lane.state is not READY:
                continue
            lane = task.lane
            step.pass_over(lane)
            lane.state = RUNNING
            task.begun_at = now
            if not step.index and task.attempt == 0:
                task.first_begun_at = now
            task.attempt += 1
            tasks.append(task)
            taken += 1
            if taken == budget:
                break
        step.favoured += taken
        step.running += taken
        return taken
