"""C8: a signal drains, commits and leaves the group; a second one forces; exit codes tell which."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from contract_pipelines import Step
from contract_world import Given, eventually

from anabranch.core.history import Begun

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World

pytestmark = pytest.mark.promise("C8")

UNREACHABLE, HALTED, INCOMPLETE, FORCED = 3, 4, 5, 130
LONG_COMMIT = {"interval_s": 600.0, "count": 1_000_000}
"""So that a commit that is seen was made by the stop."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_c8_a_signal_drains_commits_and_leaves(engine_runner: Runner, world: World, number: signal.Signals) -> None:
    """The running call ends, what waits behind it is not begun, its progress is committed, the group is empty."""
    world.create()
    release = world.flag("release")
    world.send([Given(b"a"), Given(b"a", {"hold_until": str(release)}), Given(b"a"), Given(b"a")])
    member = engine_runner.start_process(engine_runner.shape(commit=LONG_COMMIT))
    eventually(lambda: world.begun()[0, 1], "the second record runs")
    member.signal(number)
    eventually(lambda: member.statistics().get("state", "stopping") != "running", "the signal was heard")
    release.touch()
    assert member.wait() == 0, member.said()
    assert world.members() == 0
    assert world.positions() == {0: 2}
    assert world.begun().keys() == {(0, 0), (0, 1)}
    engine_runner.run(member="b")
    world.accepts(records=4, duplicates_max=0)


def test_c8_a_second_signal_forces(engine_runner: Runner, world: World) -> None:
    """Whoever sends a second signal does not want to wait for the calls; what was not settled is done again."""
    world.create()
    release = world.flag("release")
    world.send([Given(b"a"), Given(b"a", {"hold_until": str(release), "stubborn": True})])
    member = engine_runner.start_process(drain_s=600.0)
    eventually(lambda: world.begun()[0, 1], "the second record runs")
    member.signal(signal.SIGTERM)
    eventually(lambda: member.statistics().get("state", "stopping") != "running", "the signal was heard")
    assert member.alive
    member.signal(signal.SIGTERM)
    assert member.wait(15) == FORCED, member.said()
    release.touch()
    engine_runner.run(member="b")
    assert world.positions() == {0: 2}
    world.accepts(records=2)


def test_c8_a_handler_that_never_returns_cannot_hold_the_stop(engine_runner: Runner, world: World) -> None:
    """Fault 16. At the drain's deadline the call is cancelled, or left behind; the code says that it was not clean."""
    world.create()
    never = world.flag("never")
    world.send([Given(b"a"), Given(b"b", {"hold_until": str(never), "stubborn": True}), Given(b"c")])
    member = engine_runner.start_process(drain_s=0.5)
    eventually(lambda: world.begun()[0, 1], "the call runs")
    member.stop()
    assert member.wait(15) == INCOMPLETE, member.said()
    assert world.positions().get(0, 0) <= 1
    never.touch()
    engine_runner.run(member="b")
    verdict = world.accepts(records=3)
    assert verdict["lost"].count == 0


def test_c8_a_plain_function_that_never_returns_cannot_hold_the_stop(async_runner: Runner, world: World) -> None:
    """Fault 16. A thread cannot be stopped: it is left behind, and the process ends all the same."""
    world.create()
    never = world.flag("never")
    world.send([Given(b"a"), Given(b"b", {"hold_until": str(never)})])
    member = async_runner.start_process(async_runner.shape(steps=(Step("obey_plainly"),)), drain_s=0.5)
    eventually(lambda: world.begun()[0, 1], "the call runs")
    member.stop()
    assert member.wait(15) == INCOMPLETE, member.said()


def test_c8_a_waiting_retry_does_not_hold_the_stop(engine_runner: Runner, world: World) -> None:
    """A record that fails for ever is not waited for until the drain's deadline is over: the next owner does it."""
    world.create()
    never = world.flag("never")
    world.send([Given(b"a", {"fail_until": str(never)}), Given(b"b")])
    retry = {"attempts": None, "initial_s": 60.0, "max_s": 60.0}
    member = engine_runner.start(engine_runner.shape(steps=(Step(retry=retry),)), drain_s=20.0)
    eventually(world.settled, "the other key is done")
    member.stop()
    assert member.wait(10) in {0, INCOMPLETE}, member.said()
    assert world.positions() == {0: 0}


def test_c8_what_was_queued_is_redone_by_the_next_owner(engine_runner: Runner, world: World) -> None:
    """A stop in the middle of a long queue is quick: what has not begun is forgotten here and done there, once."""
    world.create(partitions=2)
    count = 600 if engine_runner.engine == "inline" else 1500  # one after another they take long enough
    world.send([Given(b"key-%d" % (n % 30), {"sleep_s": 0.005}, n % 2) for n in range(count)])
    for number, settled in enumerate((50, 150, 250)):
        member = engine_runner.start(member=f"m{number}")
        eventually(lambda settled=settled: len(world.settled()) >= settled, f"{settled} records are settled")
        member.stop()
        assert member.wait() == 0, member.said()
    done = len(world.settled())
    assert done < count
    world.send([Given(b"last", {}, 0)])
    members = [engine_runner.start(member=name, until="end") for name in ("y", "z")]
    assert [member.wait() for member in members] == [0, 0]
    world.accepts(records=count + 1, duplicates_max=0)


def test_c8_exit_code_3_when_no_broker_answers(engine_runner: Runner, world: World) -> None:
    """Nobody listens: the sentence names the address and how to start a broker."""
    member = engine_runner.start_process(bootstrap="127.0.0.1:1", reach_s=0.5)
    assert member.wait() == UNREACHABLE
    assert "127.0.0.1:1" in member.said()


def test_c8_exit_code_4_when_a_handler_raises_fatal(engine_runner: Runner, world: World) -> None:
    """`Fatal` stops the pipeline; nothing of the record is committed, and what ran beside it is redone or settled."""
    world.create()
    letters = world.create(topic=f"{world.topic}-dead")
    world.send([Given(b"a"), Given(b"b", {"raise": "fatal"}), Given(b"c")])
    member = engine_runner.start_process(engine_runner.shape(dead_letters={"topic": letters}))
    assert member.wait() == HALTED, member.said()
    assert "told to be fatal" in member.said()
    assert (0, 1) not in world.settled()
    assert world.positions().get(0, 0) <= 1
    assert world.read(letters) == []
    assert len([event for event in world.events(Begun) if event.offset == 1]) == 1
