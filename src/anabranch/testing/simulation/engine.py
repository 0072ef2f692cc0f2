"""The scripted engine: calls that take their time and end as the scenario says, whoever makes them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from anabranch.core.errors import HandlerTimeout, Poison, RetryAfter
from anabranch.core.history import Begun, Ended, Outcome
from anabranch.core.work import FILTERED, Completion, Output, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.testing.simulation.member import Member
    from anabranch.testing.simulation.scenario import Scenario


class Plan(NamedTuple):
    """How one call goes."""

    duration_s: float
    value: Any = ()
    error: Exception | None = None


def plan_call(scenario: Scenario, task: Task, number: int) -> Plan:
    """Say how a record's call of this number in a step goes: by hash, so that every replay meets the same."""
    record, faults = task.record, scenario.faults
    place = f"{scenario.seed}/{record.partition}/{record.offset}/{task.step}"
    chances = (crc32(f"{place}/{chance}".encode()) / 2**32 for chance in range(10))
    low, high = scenario.handler_s
    duration_s = low + (high - low) * next(chances)
    is_last = task.step == len(scenario.policy.steps) - 1
    if record.key is not None and record.key == scenario.failing_key:
        return Plan(duration_s, error=ConnectionError("never"))
    if next(chances) < faults.poison:
        return Plan(duration_s, error=Poison("it cannot pass"))
    if next(chances) < faults.hang and number == 1:
        return Plan(scenario.timeout_s, error=HandlerTimeout("it took too long"))
    if next(chances) < faults.retry_after and number == 1:
        return Plan(duration_s, error=RetryAfter(0.2))
    if next(chances) < faults.transient and number <= 1 + int(next(chances) * 3):
        return Plan(duration_s, error=ConnectionError("try again"))
    if next(chances) < faults.filtered:
        return Plan(duration_s, FILTERED)
    if is_last and scenario.writes:
        return Plan(duration_s, [Output("receipts", record.key, b"done", ())])
    return Plan(duration_s, () if is_last else record.value)


class ScriptedEngine:
    """The calls of one member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._running: dict[Task, Begun] = {}
        """The calls that run, as they began."""
        self._per_step: Counter[str] = Counter()
        self._calls: Counter[tuple[Task, int]] = Counter()
        """A probe of the breaker is a call and no attempt, so calls are counted here."""
        self._ended: list[Completion] = []

    def submit(self, tasks: Sequence[Task]) -> None:
        """Begin calls."""
        member, scenario = self._member, self._member.world.scenario
        for task in tasks:
            if scenario.faults.start_refused and member.world.random.random() < scenario.faults.start_refused:
                self._report(Completion(task, None, None, cancelled=True))
                continue
            if task in self._running:
                member.world.violation(f"{task!r} was submitted while it ran")
            begun = self._running[task] = self._begun(task)
            self._per_step[begun.step] += 1
            if self._per_step[begun.step] > scenario.policy.steps[task.step].concurrency:
                member.world.violation(f"{self._per_step[begun.step]} calls of step {begun.step} run at once")
            member.history.record([begun])
            self._calls[task, task.step] += 1
            plan = plan_call(scenario, task, self._calls[task, task.step])
            member.later(plan.duration_s, partial(self._end, task, plan, begun))

    def cancel(self, tasks: Sequence[Task]) -> None:
        """End calls at once, unless they are stubborn; the report may take long, and one may have ended by itself."""
        world = self._member.world
        for task in tasks:
            if task in self._running and not world.scenario.stubborn:
                self._note_end(task, "failed")
                completion = Completion(task, None, None, cancelled=True)
                self._member.later(world.random.uniform(0, world.scenario.late_s), partial(self._report, completion))

    def _end(self, task: Task, plan: Plan, begun: Begun) -> None:
        if self._running.get(task) is not begun:
            return  # it was cancelled
        self._note_end(task, "done" if plan.error is None else "failed")
        self._report(Completion(task, plan.value if plan.error is None else None, plan.error))

    def _note_end(self, task: Task, outcome: Outcome) -> None:
        begun = self._running.pop(task)
        self._per_step[begun.step] -= 1
        self._member.history.record([Ended(*begun, outcome)])

    def _report(self, completion: Completion) -> None:
        """Hand in completions in batches, a little later."""
        self._ended.append(completion)
        if len(self._ended) == 1:
            self._member.later(self._member.world.random.uniform(0, self._member.world.scenario.latency_s), self._flush)

    def _flush(self) -> None:
        ended, self._ended = self._ended, []
        self._member.completed(ended)

    def _begun(self, task: Task) -> Begun:
        record, world = task.record, self._member.world
        step = world.scenario.policy.steps[task.step].name
        place = (record.topic, record.partition, record.offset)
        return Begun(self._member.name, task.epoch, *place, world.key_of(record), step, task.attempt)
