"""Settles records: what leaves the plane, and what the tracker, the gate, the commits and the limits learn of it.

The hot loops only append to `Assignment.settled` and let the lane go on; here the rest is done for a whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.control.assignment import Assignment, Phase
from anabranch.control.lanes import Lane, LaneState

if TYPE_CHECKING:
    from anabranch.control.commits import CommitSchedule
    from anabranch.control.dead_letters import DeathLimits
    from anabranch.control.turn import Turn
    from anabranch.core.work import Task

READY, ENDED = LaneState.READY, LaneState.ENDED


class Settling:
    """Counts and applies what a step has settled."""

    __slots__ = ("_commits", "_limits", "_reports", "_turn", "dead", "filtered", "handled", "skipped")

    def __init__(self, turn: Turn, commits: CommitSchedule, limits: DeathLimits | None, reports: bool) -> None:
        self._turn = turn
        self._commits = commits
        self._limits = limits
        self._reports = reports
        self.handled = 0
        self.filtered = 0
        self.dead = 0
        self.skipped = 0
        """By a carryover; they are not counted as handled."""

    def settle(self, task: Task) -> None:
        """Settle the head of a lane and let the lane go on."""
        assignment = task.assignment
        if not assignment.settled:
            self._turn.touched.append(assignment)
        assignment.settled.append(task)
        go_on(task.lane, assignment)

    def flush(self) -> None:
        """Apply what was settled since the last flush."""
        turn = self._turn
        if not turn.touched:
            return
        total = 0
        for assignment in turn.touched:
            settled = assignment.settled
            total += len(settled)
            ordinals = [task.ordinal for task in settled]
            assignment.tracker.settle_many(ordinals)
            tasks = assignment.tasks
            for ordinal in ordinals:
                del tasks[ordinal]
            assignment.bytes -= sum([task.bytes for task in settled])
            assignment.is_changed = True
            if self._reports:
                others = {*turn.filtered, *turn.dead}
                turn.handled.extend(task for task in settled if task not in others)
            assignment.settled = []
            if assignment.gate.is_closed:
                self.observe_gate(assignment)
        turn.touched = []
        self._count(total)

    def observe_gate(self, assignment: Assignment) -> None:
        """Let the partition's gate look at what is held, and say so if it closes or opens."""
        closed = assignment.gate.observe(len(assignment.tasks), assignment.bytes)
        if closed is None or assignment.phase is not Phase.OWNED:
            return
        if closed:
            self._turn.paused.append(assignment.partition)
        else:
            self._turn.resumed[assignment.partition] = assignment.room()

    def _count(self, total: int) -> None:
        turn = self._turn
        filtered, dead = len(turn.filtered), len(turn.dead)
        self.filtered += filtered
        self.dead += dead
        self.handled += total - filtered - dead
        if self._limits is not None and total > dead:
            self._limits.lived(total - dead)
        if not self._reports:
            turn.filtered = []
            turn.dead = []
        self._commits.settled(total)


def go_on(lane: Lane, assignment: Assignment) -> None:
    """Let a lane go on to its next record; it ends when there is none."""
    rest = lane.rest
    if rest:
        lane.head = rest.popleft()
        lane.state = READY
        lane.step.ready.append(lane)
    else:
        lane.state = ENDED
        del assignment.lanes[lane.step.index][lane.key]
