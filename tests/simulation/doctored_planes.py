"""Planes with one fault each, put in at the boundary: the simulation must find every one of them out."""

from collections.abc import Callable
from dataclasses import replace

from anabranch.control.assignment import Assignment
from anabranch.control.carryover import Carryover
from anabranch.control.effects import Cancel, Commit, Effect, Released, Settled, Submit, Write
from anabranch.control.events import (
    Assigned,
    CommitEnded,
    Completed,
    Delivered,
    Event,
    Fetched,
    Revoked,
    Start,
)
from anabranch.control.fences import Fences
from anabranch.control.plane import Plane
from anabranch.control.policy import PlanePolicy
from anabranch.core.work import FILTERED, Completion, Delivery, Task, TopicPartition


class CommitsTheHighestSeen(Plane):
    """Commits what was fetched, not what is settled."""

    def step(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Fetched):
            self.__dict__.setdefault("seen", {})[event.partition] = event.position
        return [self._raise(effect) if isinstance(effect, Commit) else effect for effect in super().step(event, now)]

    def _raise(self, commit: Commit) -> Commit:
        seen = self.__dict__.get("seen", {})
        positions = {
            partition: replace(position, position=max(position.position, seen.get(partition, 0)), metadata="")
            for partition, position in commit.positions.items()
        }
        return replace(commit, positions=positions)


class NoFences(Fences):
    """Holds no key back because of a call of an older epoch."""

    def hold(self, assignment: Assignment) -> None:
        pass


class BelievesOldEpochs(Plane):
    """Takes the completion of an older epoch for that of the call which now runs for the same record."""

    def __init__(self, policy: PlanePolicy, *, member: str = "", reports_settled: bool = False) -> None:
        super().__init__(policy, member=member, reports_settled=reports_settled)
        fences = NoFences()
        self._fences = self._intake._fences = self._outcomes._fences = self._ownership._fences = fences
        self._running: dict[tuple[str, int, int], Task] = {}

    def step(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Completed):
            event = Completed([self._mistaken(completion, self._running) for completion in event.completions])
        effects = super().step(event, now)
        for effect in effects:
            if isinstance(effect, Submit):
                self._running.update({_place(task): task for task in effect.tasks})
        return effects

    def _mistaken(self, completion: Completion, running: dict[tuple[str, int, int], Task]) -> Completion:
        current = running.get(_place(completion.task), completion.task)
        if current.epoch == completion.task.epoch:
            return completion
        return Completion(current, (), None)


class LetsTheLaneGoOnWhileARetryWaits(Plane):
    """Takes a failed record out of its lane, and tries it again when the next ones have begun."""

    def step(self, event: Event, now: float) -> list[Effect]:
        aside: dict[Task, float] = self.__dict__.setdefault("aside", {})
        again: list[Task] = []
        if isinstance(event, Completed):
            kept = []
            for completion in event.completions:
                if completion.task in aside:
                    del aside[completion.task]
                elif completion.error is not None and completion.task.step == 0:
                    aside[completion.task] = now
                    again.append(completion.task)
                    kept.append(completion._replace(value=FILTERED, error=None))
                else:
                    kept.append(completion)
            event = Completed(kept)
        effects = super().step(event, now)
        for task in again:
            task.attempt += 1
        return [*effects, Submit(again)] if again else effects


class TakesAFailureForSuccess(Plane):
    """Drops every retry."""

    def step(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Completed):
            event = Completed(
                [each if each.error is None else each._replace(value=(), error=None) for each in event.completions]
            )
        return super().step(event, now)


class GivesEachRecordALaneOfItsOwn(Plane):
    """Compares keys by something that differs for each record, as a hash with a salt or an identity would."""

    def step(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Fetched):
            event = replace(event, keys=[b"%d" % record.offset for record in event.records])
        return super().step(event, now)


class SettlesBeforeTheAcknowledgement(Plane):
    """Takes handing over to the sink for the acknowledgement."""

    def step(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Delivered):
            return []
        effects = super().step(event, now)
        written = [task for effect in effects if isinstance(effect, Write) for task in effect.tasks]
        if written:
            effects += super().step(Delivered([Delivery(task, None) for task in written]), now)
        return effects


class BelievesAnyCarryover(Plane):
    """Takes everything below the end of a carryover for settled."""

    def step(self, event: Event, now: float) -> list[Effect]:
        effects = super().step(event, now)
        if isinstance(event, Assigned):
            for partition, start in event.starts.items():
                self._overrate(partition, start)
        return effects

    def _overrate(self, partition: TopicPartition, start: Start) -> None:
        assignment = self._ownership.assignments.get(partition)
        if assignment is not None and assignment.carryover is not None:
            runs = assignment.carryover.runs
            assignment.carryover = Carryover([runs[0]._replace(first=start.position, last=runs[-1].last)])


class ReleasesWhileCallsRun(Plane):
    """Releases a revoked partition at once, and lets its calls run."""

    def step(self, event: Event, now: float) -> list[Effect]:
        effects = super().step(event, now)
        if isinstance(event, Revoked):
            effects.append(Released(event.partitions))
        return effects


class CancelsNothing(Plane):
    """Lets the calls of a lost partition run."""

    def step(self, event: Event, now: float) -> list[Effect]:
        return [effect for effect in super().step(event, now) if not isinstance(effect, Cancel)]


class TakesARefusedCommitForDone(Plane):
    """Does not look at the answers to its commits."""

    def step(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, CommitEnded):
            event = replace(event, errors=dict.fromkeys(event.errors), fenced=False)
        return super().step(event, now)


class ForgetsToReport(Plane):
    """Loses one settled record in fifty on the way to the tracker's report."""

    def step(self, event: Event, now: float) -> list[Effect]:
        return [
            replace(effect, tasks=[task for task in effect.tasks if task.record.offset % 50])
            if isinstance(effect, Settled)
            else effect
            for effect in super().step(event, now)
        ]


DOCTORED: dict[type[Plane], str] = {
    CommitsTheHighestSeen: "committed_too_far",
    BelievesOldEpochs: "overlapping",
    LetsTheLaneGoOnWhileARetryWaits: "reordered",
    TakesAFailureForSuccess: "lost",
    GivesEachRecordALaneOfItsOwn: "reordered",
    SettlesBeforeTheAcknowledgement: "before it was acknowledged",
    BelievesAnyCarryover: "skipped",
    ReleasesWhileCallsRun: "overlapping",
    CancelsNothing: "overlapping",
    TakesARefusedCommitForDone: "not everything is done",
    ForgetsToReport: "lost",
}
"""Each with what it is found out by: a checker of the oracle, or a sentence of the checks from outside."""


def maker(doctored: type[Plane]) -> Callable[[PlanePolicy, str], Plane]:
    """Give what the simulation makes its planes with."""
    return lambda policy, member: doctored(policy, member=member, reports_settled=True)


def _place(task: Task) -> tuple[str, int, int]:
    return (task.record.topic, task.record.partition, task.record.offset)
