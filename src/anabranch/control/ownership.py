"""Takes partitions and gives them back.

A partition that is to go (revoke, stop) drains, in these steps:

1. What has not begun is forgotten; whoever has the partition next reads it again. Nothing new of it is taken in.
2. What has begun goes on, through all its steps and through retries that are due before the deadline. A record whose
   next attempt comes too late is given up, and with it whatever of its key stands behind it (the lane is stranded): a
   later record of a key never overtakes an earlier one that somebody else will repeat.
3. When nothing is held any more, or at the deadline, it closes: calls that still run are cancelled and their keys
   fenced, its lanes end, and what is committable is committed. From here on completions are late.
4. When the commit is answered it is released and forgotten. A refused commit is tried again by a stop, for a while
   beyond its deadline too: it may have stood behind a rebalance that the stop of others began. In a revoke a refusal
   means that the partition is lost.

A lost partition is forgotten at once: nothing of it may be committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.control.assignment import Assignment, Phase
from anabranch.control.carryover import decode
from anabranch.control.effects import Stopped
from anabranch.control.gate import PartitionGate
from anabranch.control.lanes import LaneState
from anabranch.control.outcomes import strand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from anabranch.control.commits import CommitSchedule
    from anabranch.control.events import CommitEnded, Start
    from anabranch.control.fences import Fences
    from anabranch.control.policy import PlanePolicy
    from anabranch.control.scheduler import Scheduler
    from anabranch.control.settling import Settling
    from anabranch.control.turn import Turn
    from anabranch.core.work import TopicPartition

STOP_COMMIT_RETRY_S = 0.2
"""How long a stop waits before it tries a refused commit again."""
STOP_COMMIT_S = 12.0
"""How long after its deadline a stop does so: beyond a session time-out, for which a group waits for a member that is
gone. A commit costs nothing; without it, all that was settled since the one before is done again."""


class Ownership:
    """The partitions that are ours, and those on their way out."""

    def __init__(
        self,
        policy: PlanePolicy,
        turn: Turn,
        *,
        scheduler: Scheduler,
        settling: Settling,
        commits: CommitSchedule,
        fences: Fences,
    ) -> None:
        self._policy = policy
        self._turn = turn
        self._scheduler = scheduler
        self._settling = settling
        self._commits = commits
        self._fences = fences
        self._epochs: dict[TopicPartition, int] = {}
        """The last epoch of every partition that was ever ours."""
        self.assignments: dict[TopicPartition, Assignment] = {}
        self.leaving: list[Assignment] = []
        """Those that drain or close."""
        self.stop_deadline: float | None = None
        self.is_stopped = False
        self._is_complete = True
        """Whether a stop has given up nothing and its last commits were taken."""
        self.abandoned = 0
        """How many records had begun and were given up in drains."""
        self.disbelieved: dict[TopicPartition, str] = {}
        """Why the carryover of a partition was not believed."""
        self._retry_at: float | None = None

    # Coming

    def assign(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Take partitions, each in a new epoch. While stopping none is taken."""
        if self.stop_deadline is not None:
            return
        self.lose([partition for partition in starts if partition in self.assignments])
        self._commits.begin(self._turn.now)
        for partition, start in starts.items():
            self._take(partition, start)
        self._share()

    def _take(self, partition: TopicPartition, start: Start) -> None:
        epoch = self._epochs[partition] = self._epochs.get(partition, 0) + 1
        carryover = None
        if self._policy.carryover:
            carryover = decode(
                start.metadata,
                topic_id=start.topic_id,
                position=start.position,
                log_start=start.log_start,
                log_end=start.log_end,
            )
            self.disbelieved.pop(partition, None)
            if carryover.reason:
                self.disbelieved[partition] = carryover.reason
        assignment = Assignment(
            partition,
            epoch,
            start.position,
            steps=len(self._policy.steps),
            gate=PartitionGate(self._policy.gate, 1),
            topic_id=start.topic_id,
            metadata=start.metadata,
            carryover=carryover or None,
        )
        self.assignments[partition] = assignment
        self._scheduler.rotation.append(assignment)

    def _share(self) -> None:
        """Share the bound anew among the partitions that are ours."""
        owned = [assignment for assignment in self.assignments.values() if assignment.phase is Phase.OWNED]
        for assignment in owned:
            assignment.gate.share(len(owned))
            self._settling.observe_gate(assignment)

    # Going

    def revoke(self, partitions: Iterable[TopicPartition], deadline: float) -> None:
        """Let partitions drain until the deadline, then release them. One that is not ours is released at once."""
        going = []
        for partition in partitions:
            assignment = self.assignments.get(partition)
            if assignment is None:
                self._turn.released.append(partition)
            else:
                assignment.is_revoked = True
                going.append(assignment)
        self._drain(going, deadline)
        self._commit_revoked([one for one in going if one.phase is Phase.CLOSING])

    def stop(self, deadline: float) -> None:
        """Let everything drain until the deadline. A second stop may bring the deadline forward."""
        if self.stop_deadline is None:
            self._is_complete = True
        self.stop_deadline = deadline if self.stop_deadline is None else min(deadline, self.stop_deadline)
        owned = [one for one in self.assignments.values() if one.phase is Phase.OWNED]
        self._turn.paused.extend(one.partition for one in owned if not one.gate.is_closed)
        self._drain(list(self.assignments.values()), self.stop_deadline)

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions at once."""
        lost = [self.assignments[partition] for partition in partitions if partition in self.assignments]
        for assignment in lost:
            if assignment.phase is not Phase.CLOSING:
                self._cut(assignment)
            self._forget(assignment)
        if lost:
            self._scheduler.purge()
            self._share()

    def lose_all(self) -> None:
        """Forget everything: we are no longer a member."""
        self.lose(list(self.assignments))

    def _drain(self, assignments: Sequence[Assignment], deadline: float) -> None:
        for assignment in assignments:
            if assignment.phase is Phase.OWNED:
                assignment.phase = Phase.DRAINING
                assignment.deadline = deadline
                self.leaving.append(assignment)
                self._forget_unbegun(assignment)
            elif assignment.phase is Phase.DRAINING:
                assignment.deadline = min(deadline, assignment.deadline)
            self._strand_hopeless(assignment)
        if assignments:
            self._scheduler.purge()
            self._share()

    def _forget_unbegun(self, assignment: Assignment) -> None:
        """Drop what has not begun: all of it stands in the first step."""
        lanes = assignment.lanes[0]
        for lane in list(lanes.values()):
            for task in lane.rest or ():
                assignment.drop(task)
            lane.rest = None
            if lane.state is LaneState.FENCED or (lane.state is LaneState.READY and lane.head.attempt == 0):
                assignment.drop(lane.head)
                lane.state = LaneState.ENDED
                del lanes[lane.key]

    def _strand_hopeless(self, assignment: Assignment) -> None:
        for lane in assignment.all_lanes():
            if lane.state is LaneState.WAITING and lane.due >= assignment.deadline:
                strand(lane, assignment)

    def close_drained(self, now: float) -> None:
        """Close what has drained, or whose time is over; say when a stop is done."""
        closing = [
            one for one in self.leaving if one.phase is Phase.DRAINING and (not one.tasks or now >= one.deadline)
        ]
        for assignment in closing:
            assignment.phase = Phase.CLOSING
            assignment.abandoned += len(assignment.tasks)
            self._cut(assignment)
        if closing:
            self._scheduler.purge()
            self._commit_revoked([one for one in closing if one.is_revoked])
        self._commit_stopped(now)
        if self.stop_deadline is not None and not self.assignments and not self.is_stopped:
            self.is_stopped = True
            self._turn.stopped = Stopped(self._is_complete)

    def _cut(self, assignment: Assignment) -> None:
        """End all lanes; cancel the calls that run and fence their keys."""
        for lane in assignment.all_lanes():
            if lane.state is LaneState.RUNNING:
                self._turn.cancelled.append(lane.head)
                self._fences.put_up(lane, assignment.partition)
            else:
                lane.state = LaneState.ENDED
        for lanes in assignment.lanes:
            lanes.clear()
        assignment.tasks.clear()
        assignment.bytes = 0

    def _commit_revoked(self, closing: Sequence[Assignment]) -> None:
        """Commit at once: what is in flight of these may not be answered before they are released."""
        for assignment in closing:
            assignment.is_changed |= self._commits.is_in_flight(assignment)
        self._commits.ask(closing)
        for assignment in closing:
            if not self._commits.is_in_flight(assignment):
                self._release(assignment)

    def _commit_stopped(self, now: float) -> None:
        """Commit what has closed because of a stop: one commit at a time, so that partitions share them."""
        closed = [one for one in self.leaving if one.phase is Phase.CLOSING and not one.is_revoked]
        if not closed or self._commits.in_flight or (self._retry_at is not None and now < self._retry_at):
            return
        self._retry_at = None
        self._commits.ask(closed)
        for assignment in closed:
            if not self._commits.is_in_flight(assignment):
                self._release(assignment)

    def answered(self, event: CommitEnded, now: float) -> None:
        """Take the answer to a commit."""
        about = self._commits.answered(event, now)
        if event.fenced:
            self.lose_all()
            return
        for assignment in about:
            if assignment.phase is not Phase.CLOSING:
                continue
            is_stopping = not assignment.is_revoked and now < assignment.deadline + STOP_COMMIT_S
            if assignment.is_changed and is_stopping:
                self._retry_at = now + STOP_COMMIT_RETRY_S
            else:
                self._release(assignment)

    def _release(self, assignment: Assignment) -> None:
        """Let a partition go whose last commit was answered, or that had nothing to commit."""
        self._is_complete &= not assignment.is_changed
        self._forget(assignment)

    def _forget(self, assignment: Assignment) -> None:
        assignment.phase = Phase.GONE
        self.abandoned += assignment.abandoned
        self._is_complete &= not assignment.abandoned
        del self.assignments[assignment.partition]
        self._scheduler.rotation.remove(assignment)
        if assignment in self.leaving:
            self.leaving.remove(assignment)
        if assignment.is_revoked:
            self._turn.released.append(assignment.partition)

    def next_deadline(self) -> float | None:
        """Say when the next drain ends."""
        times = [assignment.deadline for assignment in self.leaving if assignment.phase is Phase.DRAINING]
        if self._retry_at is not None and not self._commits.in_flight:
            times.append(self._retry_at)
        return min(times, default=None)
