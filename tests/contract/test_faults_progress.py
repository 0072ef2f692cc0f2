"""Faults 1-5 of docs/internals/contract.md that need a real broker and are not already a promise's own test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract_pipelines import Step
from contract_world import Given, eventually

from anabranch.core.history import Committed

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World

HALTED = 4


def test_fault_02_a_gap_left_by_a_restart_does_not_block_commits(async_runner: Runner, world: World) -> None:
    """What would go wrong: the successor believes what was done ahead, never sees those records again, and waits for
    them for ever; or it forgets the gap and commits past it.
    """
    world.create()
    release = world.flag("release")
    stuck = {"fail_until": str(release)}
    world.send([Given(b"key-%d" % n, stuck if n % 10 == 3 else {}) for n in range(100)])
    shape = async_runner.shape(steps=(Step(retry={"attempts": None, "initial_s": 0.2, "max_s": 0.2}),))
    for name in ("a", "b"):
        member = async_runner.start(shape, member=name, drain_s=0.5)
        eventually(lambda: len(world.settled()) == 90, "all but ten are settled")
        eventually(lambda: world.positions() == {0: 3}, "the first gap holds the commit back")
        member.stop()
        assert member.wait() in {0, 5}, member.said()
    release.touch()
    async_runner.run(shape, member="c")
    assert world.positions() == {0: 100}
    world.accepts(records=100, duplicates_max=0)


def test_fault_03_nothing_is_committed_that_was_only_seen(async_runner: Runner, world: World) -> None:
    """What would go wrong: at a revoke the consumer's position is committed, far ahead of what was handled."""
    world.create(partitions=2)
    release = world.flag("release")
    world.send([Given(b"k%d" % (n % 2), {"hold_until": str(release)}, n % 2) for n in range(400)])
    first = async_runner.start(member="a", grace_s=0.1)
    eventually(lambda: len(world.begun()) == 2, "one call runs in each partition, many records were seen")
    second = async_runner.start(member="b", grace_s=0.1)
    eventually(
        lambda: len({event.partition for event in world.events(Committed)}) == 2 or world.members() == 2, "moved"
    )
    assert set(world.positions().values()) <= {0}
    release.touch()
    eventually(lambda: world.positions() == {0: 200, 1: 200}, "all is handled and committed")
    for member in (first, second):
        member.stop()
        assert member.wait() == 0, member.said()
    world.accepts(records=400)


def test_fault_05_a_position_beyond_the_end_halts_and_says_so(async_runner: Runner, world: World) -> None:
    """What would go wrong: the client's reset policy jumps to the end or the beginning without a word."""
    world.create()
    world.send([Given(b"a") for _ in range(10)])
    world.commit(1000)
    member = async_runner.start()
    assert member.wait() == HALTED, member.said()
    assert "1000" in member.said()
    assert f"{world.topic}" in member.said()
    assert world.settled() == {}
    assert world.positions() == {0: 1000}
