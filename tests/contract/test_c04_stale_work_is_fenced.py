"""C4: each assignment raises the epoch; a completion of an older one changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract_pipelines import Step
from contract_world import Given, eventually

from anabranch.core.history import Begun, Ended, Settled
from anabranch.testing.history import read_history

if TYPE_CHECKING:
    from contract_runner import Member, Runner
    from contract_world import World

    from anabranch.testing.history import Process

pytestmark = pytest.mark.promise("C4")


@pytest.mark.parametrize("end", ["success", "failure"])
def test_c4_a_call_that_outlives_its_assignment_changes_nothing(engine_runner: Runner, world: World, end: str) -> None:
    """Fault 6. A stubborn call survives the revoke of its partition; its late success or failure settles nothing,
    commits nothing and sends no dead letter. The next owner does the record again.
    """
    world.create(partitions=2)
    letters = world.create(topic=f"{world.topic}-dead")
    release = world.flag("release")
    script = {"hold_until": str(release), "stubborn": True} | ({"raise": "poison"} if end == "failure" else {})
    world.send([Given(b"a", script, 0), Given(b"b", script, 1)])
    shape = engine_runner.shape(dead_letters={"topic": letters})
    first = engine_runner.start(shape, member="a", grace_s=0.2, members=1)
    eventually(world.begun, "a call runs")
    second = engine_runner.start(shape, member="b", grace_s=0.2)
    eventually(lambda: any(event.member == "b" for event in world.events(Begun)), "one record was begun again by b")
    release.touch()
    eventually(lambda: len(world.settled()) == 2, "both records are settled")
    for member in (second, first):
        member.stop()
        assert member.wait() == 0, member.said()
    assert sorted(event.member for event in world.events(Settled)) == ["a", "b"]
    assert len(world.read(letters)) == (2 if end == "failure" else 0)
    assert world.positions() == {0: 1, 1: 1}


def test_c4_a_partition_that_comes_back_has_a_new_epoch(engine_runner: Runner, world: World) -> None:
    """A partition moves to a second member and back while its old call still runs: the same offset is delivered to
    the same member again, which waits for the old call before it begins anew; the old call's late end does not settle
    it, and no slot leaks (fault 7).
    """
    world.create(partitions=2)
    release = world.flag("release")
    hold = {"hold_until": str(release), "stubborn": True}
    world.send([Given(b"a", hold, 0), Given(b"b", hold, 1)])
    shape = engine_runner.shape(steps=(Step(concurrency=8),))
    first = engine_runner.start(shape, member="a", grace_s=0.1, members=1)
    eventually(lambda: len(world.begun()) == 2 or (engine_runner.engine == "inline" and world.begun()), "calls run")
    second = engine_runner.start(shape, member="b", grace_s=0.1, drain_s=0.5)
    eventually(lambda: {event.member for event in world.events(Begun)} == {"a", "b"}, "one partition has moved")
    second.stop()
    eventually(lambda: world.members() == 1 or None, "the second member has left", 40)
    eventually(lambda: held(first) == 2, "the first member was given its record again, while its old call runs")
    release.touch()
    assert second.wait() in {0, 5}
    eventually(lambda: len(world.settled()) == 2, "both records are settled")
    world.send([Given(b"c", {}, number % 2) for number in range(20)])
    eventually(lambda: len(world.settled()) == 22, "work goes on")
    first.stop()
    assert first.wait() == 0
    assert all(count == 1 for count in world.settled().values()), "an old epoch settled a record too"
    assert world.positions() == {0: 11, 1: 11}
    assert_no_member_ran_a_record_twice_at_once(world)


def held(member: Member) -> int:
    """Answer how many records a member holds."""
    return sum(partition["incomplete"] for partition in member.statistics()["partitions"].values())


def assert_no_member_ran_a_record_twice_at_once(world: World) -> None:
    """Between members a stubborn call may overlap with its successor: the limit told in docs/internals/contract.md."""
    running: set[tuple[Process, int, int]] = set()
    for batch in read_history(world.histories):
        for event in batch.events:
            if isinstance(event, Begun | Ended):
                call = (batch.process, event.partition, event.offset)
                if isinstance(event, Ended):
                    running.discard(call)
                else:
                    assert call not in running, f"{event} began while the same record's old call ran"
                    running.add(call)
