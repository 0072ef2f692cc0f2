"""Faults 6-9 of docs/internals/contract.md that need a real broker; fault 6 is C4's own test, fault 9 is the storm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract_pipelines import Step
from contract_world import Given, eventually

from anabranch.core.history import Begun, Settled

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World


def test_fault_07_no_slot_leaks_when_partitions_move_under_running_calls(async_runner: Runner, world: World) -> None:
    """What would go wrong: calls of a revoked partition keep their slots, until nothing is begun any more."""
    world.create(partitions=4)
    shape = async_runner.shape(steps=(Step(concurrency=3),))

    def works(name: str) -> bool:
        world.send([Given(b"key-%d" % number, {"sleep_s": 0.01}, number % 4) for number in range(8)])
        return any(event.member == name for event in world.events(Settled))

    first = async_runner.start(shape, member="a", grace_s=0.0)
    for number in range(3):
        other = async_runner.start(shape, member=f"b{number}", grace_s=0.0)
        eventually(lambda name=f"b{number}": works(name), "the other works")
        other.stop()
        assert other.wait() == 0, other.said()
    ends = world.ends()
    eventually(lambda: world.positions() == ends, "everything is done with three slots")
    first.stop()
    assert first.wait() == 0
    world.accepts(records=sum(ends.values()))


def test_fault_07_records_fetched_before_a_revoke_are_not_run_after_it(async_runner: Runner, world: World) -> None:
    """What would go wrong: the queue of a partition that has moved is worked off by both its owners."""
    world.create(partitions=2)
    world.send([Given(b"key-%d" % (n % 20), {"sleep_s": 0.01}, n % 2) for n in range(800)])
    shape = async_runner.shape(steps=(Step(concurrency=4),))
    first = async_runner.start(shape, member="a")
    eventually(lambda: len(world.settled()) > 20, "the first member works, and has fetched all")
    second = async_runner.start(shape, member="b")
    eventually(lambda: len(world.settled()) == 800, "all is done")
    for member in (first, second):
        member.stop()
        assert member.wait() == 0, member.said()
    assert {event.member for event in world.events(Begun)} == {"a", "b"}
    world.accepts(records=800, duplicates_max=0)


AWAY_S = 5.0
"""Longer than the session (1.5 s), and then than a question to the cluster takes to be given up (3 s)."""


@pytest.mark.own_broker
@pytest.mark.parametrize("how", ["kill -9", "kill -9, and away for longer than the session", "stop"])
def test_fault_08_a_broker_that_comes_back_finds_its_group_at_work(
    async_runner: Runner, world: World, how: str
) -> None:
    """What would go wrong: buffered records are settled and their commits, refused meanwhile, are taken for done; the
    outputs under way are lost, or their handlers run again; a run to the end asks how far the group is, gets no answer,
    and gives up.
    """
    world.create(partitions=2)
    out = world.create(topic=f"{world.topic}-out")
    world.send([Given(b"key-%d" % (n % 40), {"sleep_s": 0.01, "answer": str(n)}, n % 2) for n in range(800)])
    shape = async_runner.shape(write=out, steps=(Step(concurrency=8),))
    member = async_runner.start(shape, until="end", session_timeout_s=1.5)
    eventually(lambda: len(world.settled()) > 100, "the member works")
    if how == "stop":
        world.broker.stop()
    else:
        world.broker.kill()
    if "away" in how:
        eventually(lambda: member.statistics()["source"]["unreachable_s"] > AWAY_S, "the broker is away for long")
    world.broker.start()
    assert member.wait(60) == 0, member.said()
    assert sum(world.positions().values()) == 800
    assert len({found.value for found in world.read(out)}) == 800
    world.accepts(records=800)


def test_fault_08_an_expelled_member_comes_back_and_rebalances_once(async_runner: Runner, world: World) -> None:
    """What would go wrong: the commit of an expelled member is refused, it joins again, commits again, for ever."""
    world.create(partitions=2)
    world.send([Given(b"key-%d" % (n % 10), {"sleep_s": 0.01}, n % 2) for n in range(200)])
    member = async_runner.start_process(member="a", session_timeout_s=1.0)
    eventually(lambda: len(world.settled()) > 20, "the member works")
    member.freeze()
    eventually(lambda: world.members() == 0, "its session is over")
    member.thaw()
    eventually(lambda: sum(world.positions().values()) == 200, "it came back and did the rest")
    member.stop()
    assert member.wait() == 0, member.said()
    epochs = {event.epoch for event in world.events(Begun)}
    assert len(epochs) == 2, f"it was assigned {len(epochs)} times"
    world.accepts(records=200, frozen={"a"})


def test_fault_16_a_slow_drain_does_not_hold_up_the_group(async_runner: Runner, world: World) -> None:
    """What would go wrong: a member that drains for long stops polling, and the group waits until it is expelled.

    The call that drains ends within the grace or is cancelled by the revoke; then the code says so.
    """
    world.create(partitions=2)
    release = world.flag("release")
    hold = {"hold_until": str(release)}
    world.send([Given(b"a", hold, 0), Given(b"b", {}, 1), Given(b"c", {}, 0)])
    first = async_runner.start(member="a", drain_s=600.0)
    eventually(lambda: (0, 0) in world.begun() and len(world.settled()) == 2, "one call runs, the rest is done")
    first.stop()
    second = async_runner.start(member="b")
    world.send([Given(b"d", {}, 1)])
    eventually(lambda: second.statistics().get("partitions"), "the second member has a share after the grace", 20)
    release.touch()
    assert first.wait() in {0, 5}, first.said()
    eventually(lambda: world.positions() == {0: 2, 1: 2}, "all is committed")
    second.stop()
    assert second.wait() == 0, second.said()
    world.accepts(records=4)
