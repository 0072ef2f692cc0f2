"""C1: a position is committed only when every record below it is settled, and settled means acknowledged."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from contract_world import Given, eventually

from anabranch.core.history import Committed, Ended, Settled

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World

pytestmark = pytest.mark.promise("C1")


def test_c1_nothing_is_committed_past_the_lowest_unsettled_record(engine_runner: Runner, world: World) -> None:
    """While record 3 fails, all others settle and only 3 is committed; when it passes, the commit jumps to the end."""
    world.create()
    release = world.flag("release")
    world.send([Given(b"a"), Given(b"b"), Given(b"c")])
    world.send([Given(b"stuck", {"fail_until": str(release)})])
    world.send([Given(b"key-%d" % number) for number in range(40)])
    member = engine_runner.start(until="end")
    eventually(lambda: len(world.settled()) == 43, "all but the stuck record are settled")
    eventually(lambda: world.positions() == {0: 3}, "everything below the stuck record is committed")
    assert {event.position for event in world.events(Committed)} <= {0, 1, 2, 3}
    release.touch()
    assert member.wait() == 0, member.said()
    assert world.positions() == {0: 44}
    world.accepts(records=44, duplicates_max=0)


def test_c1_a_record_that_is_filtered_out_is_settled(engine_runner: Runner, world: World) -> None:
    """A filtered record holds nothing back and runs no handler."""
    world.create()
    world.send([Given(b"a", {"unwanted": number % 2 == 0}) for number in range(20)])
    engine_runner.run(engine_runner.shape(filter="is_wanted"))
    how = {event.offset: event.how for event in world.events(Settled)}
    assert how == {offset: "handled" if offset % 2 else "filtered" for offset in range(20)}
    assert world.positions() == {0: 20}
    world.accepts(records=20, duplicates_max=0)


def test_c1_every_settled_record_has_its_output_in_the_log(engine_runner: Runner, world: World) -> None:
    """kill -9 in the middle: whatever was settled by then is in the output topic."""
    world.create(partitions=2)
    out = world.create(topic=f"{world.topic}-out")
    records = [
        Given(b"key-%d" % (number % 20), {"answer": str(number), "sleep_s": 0.001}, number % 2) for number in range(400)
    ]
    world.send(records)
    shape = engine_runner.shape(write=out)
    member = engine_runner.start_process(shape, session_timeout_s=1.5)
    eventually(lambda: len(world.settled()) > 100, "some records are settled")
    member.kill()
    settled = set(world.settled())
    written = {value_place(found) for found in world.read(out)}
    assert settled <= written, "a record was settled before its output was acknowledged"
    engine_runner.run(shape, member="b", until="end")
    assert {value_place(found) for found in world.read(out)} == {(number % 2, number // 2) for number in range(400)}
    world.accepts(records=400, killed={member.pid: member.killed_ns})


def value_place(found: object) -> tuple[int, int]:
    """Answer which record an output was made from: its number was the answer."""
    number = int(found.value)  # type: ignore[attr-defined]  # a Found
    return number % 2, number // 2


@pytest.mark.own_broker
def test_c1_nothing_is_settled_while_its_output_is_not_acknowledged(engine_runner: Runner, world: World) -> None:
    """The call ends while the broker is frozen: it is not settled until the broker has taken its output."""
    world.create()
    out = world.create(topic=f"{world.topic}-out")
    release = world.flag("release")
    world.send([Given(b"a", {"hold_until": str(release), "answer": "x"})])
    member = engine_runner.start(engine_runner.shape(write=out), until="end")
    eventually(world.begun, "the call is under way")
    os.kill(world.broker.pid, signal.SIGSTOP)
    try:
        release.touch()
        eventually(lambda: world.events(Ended), "the call has ended")
        eventually(lambda: "acknowledged" in " ".join(member.statistics()["why"]), "why says what is waited for")
        assert world.settled() == {}
    finally:
        os.kill(world.broker.pid, signal.SIGCONT)
    assert member.wait() == 0, member.said()
    assert len(world.read(out)) == 1
    world.accepts(records=1, duplicates_max=0)


def test_c1_what_retention_removed_unread_is_counted(engine_runner: Runner, world: World) -> None:
    """The group is at 5 when the log begins at 12: seven records are lost, said so, and the rest is handled."""
    world.create()
    world.send([Given(b"key-%d" % number) for number in range(20)])
    world.commit(5)
    world.delete_records_below(12)
    member = engine_runner.run()
    assert member.statistics()["lost_to_retention"] == 7
    assert set(world.settled()) == {(0, offset) for offset in range(12, 20)}
    world.accepts(records=8, duplicates_max=0, starts={(world.topic, 0): 12})


def test_c1_the_last_commit_is_made_when_the_topic_goes_idle(engine_runner: Runner, world: World) -> None:
    """Fault 5. Without a record that comes after, the last ones are committed all the same."""
    world.create()
    member = engine_runner.start()
    world.send([Given(b"a"), Given(b"b")])
    eventually(lambda: world.positions() == {0: 2}, "the last records of an idle topic are committed")
    member.stop()
    assert member.wait() == 0
    world.accepts(records=2, duplicates_max=0)
