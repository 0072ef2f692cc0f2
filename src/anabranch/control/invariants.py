"""The rules that hold between any two steps of the plane, each with its sentence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from anabranch.control.assignment import Assignment, Phase
from anabranch.control.lanes import Lane, LaneState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.control.fences import Fences
    from anabranch.control.scheduler import Scheduler


def check(assignments: Sequence[Assignment], scheduler: Scheduler, fences: Fences) -> None:
    """Assert all of them."""
    for assignment in assignments:
        _check_assignment(assignment)
    lanes = [lane for assignment in assignments for lane in assignment.all_lanes()]
    _check_steps(lanes, scheduler, fences)
    _check_waiting(lanes, scheduler)
    assert Counter(map(id, scheduler.rotation)) == Counter(map(id, assignments)), "every partition has its turn"


def _check_assignment(assignment: Assignment) -> None:
    tracker = assignment.tracker
    tracker.check_invariants()
    assignment.leader_epochs.check_invariants()
    assert assignment.phase is not Phase.GONE, "what is gone is forgotten"
    assert not assignment.settled, "what is settled is told to the tracker in the same step"
    assert assignment.committed <= tracker.committable <= tracker.position, "committed ≤ committable ≤ position"
    held = [task for lane in assignment.all_lanes() if lane.state is not LaneState.STRANDED for task in lane.tasks()]
    assert sorted(task.ordinal for task in held) == sorted(assignment.tasks), "what is held stands in one lane"
    assert all(assignment.tasks[task.ordinal] is task for task in held), "a task is found by its ordinal"
    assert assignment.bytes == sum(task.bytes for task in held), "bytes are counted"
    if assignment.phase is Phase.OWNED:
        assert tracker.incomplete == len(held), "what is incomplete is held"
    for step, lanes in enumerate(assignment.lanes):
        for key, lane in lanes.items():
            _check_lane(assignment, step, lane)
            assert lane.key == key, "a lane is found by its key"
    _check_order(assignment)


def _check_lane(assignment: Assignment, step: int, lane: Lane) -> None:
    assert lane.state not in {LaneState.ENDED, LaneState.ORPHANED}, "a lane exists while it has work"
    assert lane.step.index == step, "a lane stands in its step"
    if lane.state is LaneState.STRANDED:
        assert assignment.phase is Phase.DRAINING, "lanes are given up only in a drain"
        assert not lane.rest, "nothing waits behind what was given up"
        return
    tasks = list(lane.tasks())
    assert all(task.lane is lane and task.step == step for task in tasks), "a task knows its place"
    assert all(task.assignment is assignment and task.epoch == assignment.epoch for task in tasks), "one epoch per lane"
    ordinals = [task.ordinal for task in tasks]
    assert ordinals == sorted(ordinals), "a lane keeps the order of arrival"
    assert all(task.attempt == 0 for task in tasks[1:]), "only a head has been tried"
    assert lane.state is not LaneState.FENCED or step == 0, "fences stand before the first step"


def _check_order(assignment: Assignment) -> None:
    """A record that is further on came earlier."""
    lowest: dict[object, int] = {}
    for lanes in assignment.lanes:
        for key, lane in lanes.items():
            ordinals = [] if lane.state is LaneState.STRANDED else [task.ordinal for task in lane.tasks()]
            assert not ordinals or ordinals[-1] < lowest.get(key, ordinals[-1] + 1), "no record overtakes its key"
            if ordinals:
                lowest[key] = ordinals[0]


def _check_steps(lanes: Sequence[Lane], scheduler: Scheduler, fences: Fences) -> None:
    orphans = Counter(task.step for task in fences.calls())
    for step in scheduler.steps:
        step.breaker.check_invariants()
        running = sum(1 for lane in lanes if lane.state is LaneState.RUNNING and lane.step is step)
        assert step.running == running + orphans[step.index], "running counts real calls"
        assert step.running <= step.concurrency, "no more calls run than may"
        assert all(step.ready.count(lane) >= lane.passed for lane in set(step.ready)), "void entries are counted"
        assert step.passed == sum(lane.passed for lane in set(step.ready)), "void entries are counted once"
        valid = {lane for lane, entries in Counter(step.ready).items() if entries - lane.passed == 1}
        ready = {lane for lane in lanes if lane.state is LaneState.READY and lane.step is step}
        assert valid == ready, "a ready lane stands once in its queue, and no other does"
        assert step.ready_count == len(ready), "ready lanes are counted"


def _check_waiting(lanes: Sequence[Lane], scheduler: Scheduler) -> None:
    waiting = {lane for lane in lanes if lane.state is LaneState.WAITING}
    assert sorted(map(id, waiting)) == sorted(id(entry[2]) for entry in scheduler.waiting), "who waits is in the heap"
    assert all(entry[0] == entry[2].due for entry in scheduler.waiting), "the heap has the due times"
    for step in scheduler.steps:
        assert step.waiting == sum(1 for lane in waiting if lane.step is step), "waiting lanes are counted"
