"""Decides what follows from the end of a call or of a delivery.

Done: the record enters the next step, or its outputs are written, or it is settled. Failed: it waits, dies or halts the
pipeline. The other hot loop of the plane is here; what goes well costs about a microsecond, what fails may cost more.

The failures of a batch are looked at after all that went well, in three passes: what each means, what the breakers make
of them together, and only then the ruling. So the batch in which a breaker opens does not use up its records' attempts.

A completion counts only for the head of a lane that runs. Anything else is late (its assignment is gone: all it does is
to free its slot and its key's fence) or unknown (a second completion of the same call), and is counted.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from anabranch.control.assignment import Assignment, Phase
from anabranch.control.effects import DeadLetter, Halt
from anabranch.control.lanes import Lane, LaneState
from anabranch.control.retry import Cause, classify, retry_delay_s
from anabranch.control.sentences import brief, name_record
from anabranch.control.settling import go_on
from anabranch.core.work import FILTERED, Completion, Delivery, Task

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from anabranch.control.dead_letters import DeathLimits
    from anabranch.control.fences import Fences
    from anabranch.control.policy import PlanePolicy
    from anabranch.control.scheduler import Scheduler
    from anabranch.control.settling import Settling
    from anabranch.control.step_queue import StepQueue
    from anabranch.control.turn import Turn

CANCELLED_WAIT_S = 0.05
"""A call that came back cancelled without our asking (the engine may not start any) is not offered again at once."""

READY, RUNNING, WRITING, DYING = LaneState.READY, LaneState.RUNNING, LaneState.WRITING, LaneState.DYING
STRANDED, ORPHANED, ENDED, FENCED = LaneState.STRANDED, LaneState.ORPHANED, LaneState.ENDED, LaneState.FENCED


class Outcomes:
    """From completions and deliveries to what follows."""

    def __init__(
        self,
        policy: PlanePolicy,
        turn: Turn,
        *,
        scheduler: Scheduler,
        settling: Settling,
        fences: Fences,
        limits: DeathLimits | None,
    ) -> None:
        self._turn = turn
        self._scheduler = scheduler
        self._settling = settling
        self._fences = fences
        self._limits = limits
        self._spread = Random(policy.jitter_seed)
        self.late = 0
        self.unknown = 0

    # Calls

    def completed(self, completions: Sequence[Completion]) -> None:
        """Take calls that ended. The hot loop."""
        turn = self._turn
        touched, filtered = turn.touched, turn.filtered
        failed: list[Completion] = []
        for completion in completions:
            task, value, error, cancelled = completion
            lane = task.lane
            if lane.state is not RUNNING or lane.head is not task:
                self._odd(completion)
                continue
            step = lane.step
            step.running -= 1
            if error is not None or cancelled:
                failed.append(completion)
                continue
            if value is FILTERED:
                filtered.append(task)
            else:
                step.done += 1
                if step.following is not None and value is not None:
                    self._enter_next(task, lane, step.following, value)
                    continue
                if value:
                    task.outputs = value
                    lane.state = WRITING
                    turn.written.append(task)
                    continue
            assignment = task.assignment
            settled = assignment.settled
            if not settled:
                touched.append(assignment)
            settled.append(task)
            rest = lane.rest
            if rest:
                lane.head = rest.popleft()
                lane.state = READY
                step.ready.append(lane)
            else:
                lane.state = ENDED
                del assignment.lanes[step.index][lane.key]
        self._observe(completions, failed)

    def _enter_next(self, task: Task, lane: Lane, step: StepQueue, value: object) -> None:
        """Move a record to the end of its lane in the next step; only then its old lane goes on."""
        assignment: Assignment = task.assignment
        lanes = assignment.lanes[step.index]
        task.step = step.index
        task.attempt = 0
        task.value = value
        following = lanes.get(lane.key)
        if following is None:
            task.lane = lanes[lane.key] = following = Lane(lane.key, step, task, READY)
            step.ready.append(following)
        elif following.state is STRANDED:
            assignment.drop(task)
            assignment.abandoned += 1
        else:
            task.lane = following
            if following.rest is None:
                following.rest = deque()
            following.rest.append(task)
        go_on(lane, assignment)

    # Failures

    def _observe(self, completions: Sequence[Completion], failed: Sequence[Completion]) -> None:
        """Tell the breakers what ended how, then rule on what failed."""
        now = self._turn.now
        causes = [self._cause(completion) for completion in failed]
        for step in self._scheduler.steps:
            if failed or step.done != step.observed:
                keys: list[Hashable] = []
                error = None
                for completion, cause in zip(failed, causes, strict=True):
                    if cause is Cause.TRANSIENT and completion.task.step == step.index:
                        keys.append(_breaker_key(completion.task))
                        error = completion.error
                step.failed += len(keys)
                step.breaker.observe(step.done - step.observed, keys, "" if error is None else brief(error), now)
                step.observed = step.done
            if step.breaker.probe is not None:
                self._look_for_probe(step, completions)
        for completion, cause in zip(failed, causes, strict=True):
            self._rule(completion, cause)

    def _cause(self, completion: Completion) -> Cause | None:
        """Say what a failure means; None when the call was cancelled."""
        if completion.cancelled or completion.error is None:
            return None
        lane: Lane = completion.task.lane
        return classify(lane.step.policy.retry, completion.error)

    def _look_for_probe(self, step: StepQueue, completions: Sequence[Completion]) -> None:
        for task, value, error, cancelled in completions:
            if task is step.breaker.probe:
                if cancelled or value is FILTERED or task.assignment.phase in {Phase.CLOSING, Phase.GONE}:
                    step.breaker.probe_ended(None, self._turn.now)
                else:
                    is_down = error is not None and classify(step.policy.retry, error) is Cause.TRANSIENT
                    step.breaker.probe_ended(not is_down, self._turn.now)
                return

    def _rule(self, completion: Completion, cause: Cause | None) -> None:
        """Decide what follows from one failure."""
        task, error = completion.task, completion.error
        lane: Lane = task.lane
        if cause is None or error is None:
            task.attempt -= 1
            self._wait(lane, self._turn.now + CANCELLED_WAIT_S, is_retry=False)
            return
        step = lane.step
        lane.failure = (task.ordinal, brief(error))
        if cause is Cause.FATAL:
            lane.state = DYING
            self._halt(f"{name_record(task)}: step {step.name!r} raised a fatal error, {brief(error)}", error)
        elif cause is Cause.POISON:
            self._bury(task, lane, error)
        elif cause is Cause.TRANSIENT and not step.breaker.is_closed:
            task.attempt -= 1
            self._scheduler.make_ready(lane)
        else:
            age_s = self._turn.now - task.first_begun_at
            delay_s = retry_delay_s(step.policy.retry, error, task.attempt, age_s, self._spread)
            if delay_s is None:
                self._bury(task, lane, error)
            else:
                self._wait(lane, self._turn.now + delay_s)

    def _wait(self, lane: Lane, due: float, is_retry: bool = True) -> None:
        """Let the lane wait; in a drain only for a retry, and if there is time for it."""
        assignment: Assignment = lane.head.assignment
        if assignment.phase is Phase.DRAINING and (not is_retry or due >= assignment.deadline):
            strand(lane, assignment)
        else:
            lane.step.retries += is_retry
            self._scheduler.wait(lane, due)

    def _bury(self, task: Task, lane: Lane, cause: BaseException) -> None:
        """Send a record to the dead letters, if there are any and it does not break their limits."""
        step = lane.step
        lane.state = DYING
        text = f"{name_record(task)} cannot pass step {step.name!r} (attempt {task.attempt}): {brief(cause)}"
        if self._limits is None:
            fix = 'There is no place for it: add .dead_letters("topic") to the pipeline, or mend the handler.'
            self._halt(f"{text}. {fix}", cause)
        elif (broken := self._limits.died()) is not None:
            fix = "Look at the dead letters, mend what fails, or raise the limit in .dead_letters(…)."
            self._halt(f"{text}. With it {broken}. {fix}", cause)
        else:
            self._turn.letters.append(DeadLetter(task, cause, step.name))

    def _halt(self, reason: str, cause: BaseException | None) -> None:
        if self._turn.halt is None:
            self._turn.halt = Halt(reason, cause)

    def _odd(self, completion: Completion) -> None:
        """Take a completion that is not of a running head."""
        task = completion.task
        lane: Lane = task.lane
        if lane.state is not ORPHANED or lane.head is not task:
            self.unknown += 1
            return
        self.late += 1
        lane.step.running -= 1
        assignment: Assignment = task.assignment
        if self._fences.take_down(lane, assignment.partition):
            self._unfence(assignment, lane)

    def _unfence(self, old: Assignment, lane: Lane) -> None:
        for assignment in self._scheduler.rotation:
            if assignment.partition == old.partition:
                held = assignment.lanes[0].get(lane.key)
                if held is not None and held.state is FENCED:
                    self._scheduler.make_ready(held)

    # Deliveries

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Take outputs and dead letters that were acknowledged, or refused for good."""
        settle, dead = self._settling.settle, self._turn.dead
        for task, error in deliveries:
            lane: Lane = task.lane
            is_letter = lane.state is DYING
            if lane.head is not task or not (is_letter or lane.state is WRITING):
                self.late += 1
            elif error is not None:
                what = "dead letter" if is_letter else "outputs"
                self._halt(f"the {what} of {name_record(task)} cannot be written: {brief(error)}", error)
            else:
                if is_letter:
                    dead.append(task)
                settle(task)


def strand(lane: Lane, assignment: Assignment) -> None:
    """Give up a lane in a drain: no record of its key may overtake the one that is given up."""
    for task in lane.tasks():
        assignment.drop(task)
        assignment.abandoned += 1
    lane.rest = None
    lane.state = STRANDED


def _breaker_key(task: Task) -> Hashable:
    """Say whose failure it is: the key's, also where records are ordered by partition, or the record's own."""
    record, key = task.record, task.lane.key
    if key is None:
        key = record.offset if record.key is None else record.key
    return (record.topic, record.partition, key)
