"""Plays one scenario from its start until everything is committed and everybody has stopped."""

from __future__ import annotations

from functools import partial
from traceback import format_exception
from typing import TYPE_CHECKING

from anabranch.control.plane import Plane
from anabranch.testing.history import History
from anabranch.testing.oracle import judge
from anabranch.testing.simulation.group import Group
from anabranch.testing.simulation.outcome import Outcome
from anabranch.testing.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.control.policy import PlanePolicy
    from anabranch.testing.simulation.log import PartitionLog
    from anabranch.testing.simulation.scenario import Scenario, Trouble

    PlaneMaker = Callable[[PlanePolicy, str], Plane]

STOP_S_MAX = 60.0


def make_plane(policy: PlanePolicy, member: str) -> Plane:
    """Make the real plane, which reports what it settles."""
    return Plane(policy, member=member, reports_settled=True)


def simulate(scenario: Scenario, plane: PlaneMaker = make_plane) -> Outcome:
    """Play a scenario and judge it. `plane` makes the plane of each member: a doctored one should be found out."""
    world = World(scenario)
    group = Group(world, lambda member: plane(scenario.policy, member))
    left = _schedule(world, group)
    group.start()

    failing_key = scenario.failing_key
    settleable = sum(record.key != failing_key for log in world.logs.values() for record in log.records)

    def is_done() -> bool:
        if failing_key is not None:
            return len(world.settled) == settleable
        return not left[0] and all(
            log.visible == len(log.records) and group.committed.get(log.partition, (-1, ""))[0] >= log.end
            for log in world.logs.values()
        )

    try:
        _run(world, group, is_done)
    except Exception as error:  # an assertion of the plane, or a refusal of its parts: it must be told with its seed
        world.violation("".join(format_exception(error)))
    return _judged(world, group)


def _run(world: World, group: Group, is_done: Callable[[], bool]) -> None:
    scenario = world.scenario
    why = world.clock.run(is_done, scenario.time_s_max, scenario.actions_max)
    if why:
        reasons = [reason for member in group.members if member is not None for reason in member.plane.why()]
        world.violation(f"not everything is done, though {why}: {group.committed}; {reasons}")
    if why or scenario.failing_key is not None:
        return
    group.stop_all()
    why = world.clock.run(lambda: group.is_empty, world.clock.now + STOP_S_MAX, scenario.actions_max)
    if why:
        world.violation(f"not everybody has stopped, though {why}")


def _schedule(world: World, group: Group) -> list[int]:
    """Let records be written and trouble happen; answer how many of these are still to come."""
    scenario = world.scenario
    left = [len(scenario.troubles)]

    def befall(trouble: Trouble) -> None:
        left[0] -= 1
        group.befall(trouble)

    def append(log: PartitionLog) -> None:
        world.append(log)
        group.wake(log.partition)

    for log in world.logs.values():
        half = len(log.records) // 2 if scenario.appended_s else 0
        for _ in range(len(log.records) - half):
            world.append(log)
        for _ in range(half):
            world.clock.at(world.random.uniform(0, scenario.appended_s), partial(append, log))
    for trouble in scenario.troubles:
        world.clock.at(trouble.at, partial(befall, trouble))
    return left


def _judged(world: World, group: Group) -> Outcome:
    for member in group.members:
        if member is not None:
            member.die()
    scenario = world.scenario
    verdict = judge(History(world.histories), records=scenario.records * scenario.partitions, frozen=world.frozen)
    return Outcome(
        seed=scenario.seed,
        told=str(scenario),
        verdict=verdict,
        violations=tuple(world.violations),
        virtual_s=world.clock.now,
        steps=world.steps,
        skipped=world.skipped,
        late=world.late,
    )
