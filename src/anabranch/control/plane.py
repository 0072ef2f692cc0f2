"""The control plane: what runs next, what may be committed, what is tried again.

`step(event, now)` takes one event and answers what is to be done. It never waits, logs or looks at a clock; `now` is
monotonic. Events and effects are batches, because the work per record must stay near two microseconds here.

How a record goes through it:

1. `Intake` gives it an ordinal in its assignment's tracker and puts it at the end of its key's lane in the first step.
2. `Scheduler` hands out the heads of ready lanes, as many as each step may run at once.
3. `Outcomes` looks at how a call ended: next step, outputs, settled, retry, dead letter, halt.
4. `Settling` tells the tracker; `PartitionGate` opens again; `CommitSchedule` stores how far everything is settled.
`Ownership` brings partitions and takes them away: drain, commit, release, forget.

Rules that hold (`invariants.py` asserts them after every step of a test):

- Every record that is held stands in exactly one lane; a lane's head is the only one of its key in its step that is
  dealt with; a record further on came earlier. So order needs no comparison of offsets anywhere.
- A call that was submitted counts as running until its completion comes, whatever has become of its partition. Its key
  begins no other call before that, not even in a later epoch.
- A position is committed only when the tracker has nothing incomplete below it; it counts as committed when it was
  answered.

After a halt nothing is decided any more: what runs is cancelled, what is settled is committed, and the partitions are
released to whoever asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.control import events, invariants
from anabranch.control.assignment import Phase
from anabranch.control.commits import CommitSchedule
from anabranch.control.dead_letters import DeathLimits
from anabranch.control.effects import Effect, Stopped
from anabranch.control.fences import Fences
from anabranch.control.intake import Intake
from anabranch.control.lanes import LaneState
from anabranch.control.outcomes import Outcomes
from anabranch.control.ownership import Ownership
from anabranch.control.scheduler import Scheduler
from anabranch.control.settling import Settling
from anabranch.control.statistics import PlaneStatistics, partition_statistics, step_statistics
from anabranch.control.turn import Turn
from anabranch.control.why import explain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch.control.effects import Room
    from anabranch.control.policy import PlanePolicy
    from anabranch.core.work import TopicPartition


class Plane:
    """One pipeline's control plane in one process. Not thread-safe: it lives on one loop."""

    def __init__(self, policy: PlanePolicy, *, member: str = "member", reports_settled: bool = False) -> None:
        """Begin with no partitions. With `reports_settled` a Settled effect names every record that is settled."""
        self.policy = policy
        self.member = member
        self._reports_settled = reports_settled
        self._turn = Turn()
        self._scheduler = Scheduler(policy.steps)
        self._fences = Fences()
        self._limits = None if policy.dead_letters is None else DeathLimits(policy.dead_letters)
        self._commits = CommitSchedule(policy.commit, policy.carryover, self._turn)
        self._settling = Settling(self._turn, self._commits, self._limits, reports_settled)
        self._intake = Intake(
            policy,
            step=self._scheduler.steps[0],
            settling=self._settling,
            commits=self._commits,
            fences=self._fences,
        )
        self._outcomes = Outcomes(
            policy,
            self._turn,
            scheduler=self._scheduler,
            settling=self._settling,
            fences=self._fences,
            limits=self._limits,
        )
        self._ownership = Ownership(
            policy,
            self._turn,
            scheduler=self._scheduler,
            settling=self._settling,
            commits=self._commits,
            fences=self._fences,
        )
        self.halted = ""
        """Why the pipeline was halted, or empty."""

    def __repr__(self) -> str:
        held = sum(len(assignment.tasks) for assignment in self._ownership.assignments.values())
        return f"<Plane {self.member} partitions={len(self._ownership.assignments)} held={held}>"

    def step(self, event: events.Event, now: float) -> list[Effect]:
        """Take one event at this time; answer what is to be done, in order."""
        turn = self._turn
        turn.now = now = max(now, turn.now)
        if self.halted:
            return self._step_halted(event)
        self._take(event, now)
        self._settling.flush()
        if turn.halt is not None:
            self._halt()
            return turn.effects(self._reports_settled)
        if self._ownership.leaving or self._ownership.stop_deadline is not None:
            self._ownership.close_drained(now)
        self._scheduler.wake(now)
        self._scheduler.dispatch(now, turn.submitted)
        self._commit_if_due(now)
        return turn.effects(self._reports_settled)

    def next_deadline(self) -> float | None:
        """Say when a Tick is wanted at the latest, if nothing else happens; None when nothing is due by time alone."""
        if self.halted:
            return None
        times = (self._scheduler.next_deadline(), self._commits.next_deadline(), self._ownership.next_deadline())
        return min((time for time in times if time is not None), default=None)

    def rooms(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Room]:
        """Say how much more of these may be fetched, as of the last step, so that no bound is passed."""
        assignments = self._ownership.assignments
        return {partition: assignments[partition].room() for partition in partitions if partition in assignments}

    def why(self) -> list[str]:
        """Answer "why is it not committing?" as of the last step."""
        assignments = list(self._ownership.assignments.values())
        return explain(assignments, self._scheduler.steps, self._commits, self.halted, self._turn.now)

    def statistics(self) -> PlaneStatistics:
        """Answer a snapshot as of the last step."""
        assignments = self._ownership.assignments.values()
        partitions = tuple(partition_statistics(assignment, self._turn.now) for assignment in assignments)
        steps = tuple(step_statistics(step) for step in self._scheduler.steps)
        lags = [partition.true_lag for partition in partitions if partition.true_lag is not None]
        return PlaneStatistics(
            partitions=partitions,
            steps=steps,
            handled=self._settling.handled,
            filtered=self._settling.filtered,
            dead=self._settling.dead,
            retries=sum(step.retries for step in steps),
            skipped=self._settling.skipped,
            late=self._outcomes.late,
            unknown=self._outcomes.unknown,
            abandoned=self._ownership.abandoned,
            commits=self._commits.ended,
            commits_refused=self._commits.refusals,
            commits_in_flight=len(self._commits.in_flight),
            running=sum(step.running for step in steps),
            held=sum(partition.held for partition in partitions),
            waiting=sum(partition.waiting for partition in partitions),
            bytes=sum(partition.bytes for partition in partitions),
            incomplete=sum(partition.incomplete for partition in partitions),
            ahead=sum(partition.ahead for partition in partitions),
            true_lag=sum(lags) if lags else None,
            fenced_calls=len(self._fences),
            halted=self.halted,
            stopping=self._ownership.stop_deadline is not None,
        )

    def check_invariants(self) -> None:
        """Assert all that must hold between two steps."""
        if self.halted:
            return
        invariants.check(list(self._ownership.assignments.values()), self._scheduler, self._fences)
        if self._limits is not None:
            self._limits.check_invariants()

    def _take(self, event: events.Event, now: float) -> None:
        """Let the part that is meant take the event."""
        match event:
            case events.Completed(completions):
                self._outcomes.completed(completions)
            case events.Fetched(partition):
                assignment = self._ownership.assignments.get(partition)
                if assignment is not None:
                    self._intake.take(assignment, event)
            case events.Delivered(deliveries):
                self._outcomes.delivered(deliveries)
            case events.CommitEnded():
                self._ownership.answered(event, now)
            case events.HighWatermarks(ends):
                self._take_watermarks(ends)
            case events.Assigned(starts):
                self._ownership.assign(starts)
            case events.Revoked(partitions, deadline):
                self._ownership.revoke(partitions, deadline)
            case events.Lost(partitions):
                self._ownership.lose(partitions)
            case events.Stop(deadline):
                self._ownership.stop(deadline)
            case events.Tick():
                pass

    def _take_watermarks(self, ends: Mapping[TopicPartition, int]) -> None:
        for partition, end in ends.items():
            if (assignment := self._ownership.assignments.get(partition)) is not None:
                assignment.high_watermark = end

    def _commit_if_due(self, now: float) -> None:
        commits = self._commits
        if commits.is_changed and not commits.in_flight:
            active = (Phase.OWNED, Phase.DRAINING)
            assignments = self._ownership.assignments.values()
            commits.ask_if_due((one for one in assignments if one.phase in active), now)

    def _halt(self) -> None:
        """Cancel what runs, commit what is settled, and want nothing else any more."""
        turn = self._turn
        assert turn.halt is not None
        self.halted = turn.halt.reason
        assignments = list(self._ownership.assignments.values())
        lanes = [lane for assignment in assignments for lane in assignment.all_lanes()]
        turn.written, turn.letters, turn.submitted, turn.paused, turn.resumed = [], [], [], [], {}
        turn.cancelled = [lane.head for lane in lanes if lane.state is LaneState.RUNNING]
        turn.released.extend(one.partition for one in assignments if one.is_revoked)
        self._commits.ask(assignments)

    def _step_halted(self, event: events.Event) -> list[Effect]:
        """Keep nobody waiting: partitions are released, a stop is done."""
        turn = self._turn
        match event:
            case events.Revoked(partitions):
                turn.released.extend(partitions)
            case events.CommitEnded():
                self._commits.answered(event, turn.now)
            case events.Stop():
                turn.stopped = Stopped(complete=False)
            case _:
                pass
        return turn.effects(self._reports_settled)
