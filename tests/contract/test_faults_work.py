"""Faults 10-12 and 14-17 of docs/internals/contract.md that need a real broker and are no promise's own test."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from contract_pipelines import Step
from contract_world import Given, eventually

from anabranch.core.history import Begun, Ended

if TYPE_CHECKING:
    from contract_runner import Member, Runner
    from contract_world import World


def test_fault_10_equal_keys_share_a_lane_across_fetches_and_processes(async_runner: Runner, world: World) -> None:
    """What would go wrong: keys are compared by identity or by a salted hash, and one key has two lanes."""
    world.create()
    keys = [b"", b"\x00", b"a", b"a\x00", "ä".encode(), b"\xff" * 300]
    for _ in range(5):
        world.send([Given(key, {"sleep_s": 0.002}) for key in keys])
    first = async_runner.start_process(member="a", until="end")
    assert first.wait() == 0, first.said()
    world.send([Given(key) for key in keys])
    async_runner.run(member="b")
    assert {event.key for event in world.events(Begun)} == set(keys)
    world.accepts(records=36, duplicates_max=0)


def test_fault_11_half_of_the_keys_fail_for_ever(async_runner: Runner, world: World) -> None:
    """What would go wrong: retries eat the slots and the memory, and the healthy half slows down or stops."""
    world.create()
    never = world.flag("never")
    script = {"fail_until": str(never)}
    world.send([Given(b"key-%d" % (n % 200), script if n % 2 else {}) for n in range(4000)])
    retry = {"attempts": None, "initial_s": 0.5, "max_s": 2.0}
    shape = async_runner.shape(gate={"records_max": 3000}, steps=(Step(concurrency=32, retry=retry),))
    member = async_runner.start(shape)
    eventually(lambda: len(world.settled()) == 2000, "the healthy half is done")
    world.send([Given(b"key-%d" % (n % 200), script if n % 2 else {}) for n in range(4000)])
    said = eventually(lambda: [line for line in member.statistics()["why"] if "paused" in line], "it says it is paused")
    assert world.topic in said[0]
    never.touch()
    eventually(lambda: world.positions() == {0: 8000}, "all is done when the failures end")
    member.stop()
    assert member.wait() == 0
    world.accepts(records=8000, duplicates_max=0)


def test_fault_12_a_full_sink_does_not_run_handlers_again(async_runner: Runner, world: World) -> None:
    """What would go wrong: the producer's queue is full, and the record is tried from its handler again, or dropped."""
    world.create()
    out = world.create(topic=f"{world.topic}-out")
    world.send([Given(b"key-%d" % (n % 100), {"answer": str(n)}) for n in range(1000)])
    async_runner.run(async_runner.shape(write=out), kafka={"queue.buffering.max.messages": "5"})
    assert sum(world.begun().values()) == 1000
    assert {int(found.value or b"") for found in world.read(out)} == set(range(1000))
    world.accepts(records=1000, duplicates_max=0)


def test_fault_14_the_late_result_of_a_timed_out_call_is_not_written(async_runner: Runner, world: World) -> None:
    """What would go wrong: a cancelled attempt answers after all, and its output is written beside the next one's."""
    world.create()
    out = world.create(topic=f"{world.topic}-out")
    release = world.flag("release")
    world.send([Given(b"a", {"hold_until": str(release), "stubborn": True, "answer": "late"}), Given(b"a")])
    member = async_runner.start(async_runner.shape(write=out, steps=(Step(timeout_s=0.1),)), until="end")
    eventually(world.flag("release.cancelled").exists, "the call is past its time-out")
    release.touch()
    assert member.wait() == 0, member.said()
    assert [event.outcome for event in world.events(Ended)] == ["failed", "done", "done"]
    assert [found.value for found in world.read(out)] == [b"late"], "only the second attempt may answer"
    world.accepts(records=2, duplicates_max=0)


def overdue(member: Member) -> bool:
    """Look whether a call was ended and still runs."""
    return any(step["overdue"] for step in member.statistics().get("engine", {}).values())


def test_fault_16_a_thread_that_cannot_be_stopped_is_waited_for(async_runner: Runner, world: World) -> None:
    """What would go wrong: the next attempt of a timed-out plain function begins while its thread still runs."""
    world.create()
    release = world.flag("release")
    world.send([Given(b"a", {"hold_until": str(release)}), Given(b"a"), Given(b"b")])
    step = Step("obey_plainly", timeout_s=0.1)
    member = async_runner.start(async_runner.shape(steps=(step,)), until="end")
    eventually(lambda: overdue(member), "the call is past its time-out")
    eventually(lambda: len(world.settled()) == 1, "the other key is done")
    assert len(world.begun()) == 2
    release.touch()
    assert member.wait() == 0, member.said()
    world.accepts(records=3, duplicates_max=0)


@pytest.mark.own_broker
def test_fault_17_nothing_is_committed_past_a_letter_that_is_not_acknowledged(
    async_runner: Runner, world: World
) -> None:
    """What would go wrong: the broker is away when a record dies; its letter is lost, and the commit passes it."""
    world.create()
    letters = world.create(topic=f"{world.topic}-dead")
    release = world.flag("release")
    script = {"hold_until": str(release), "raise": "poison"}
    world.send([Given(b"key-%d" % n, script) for n in range(5)])
    shape = async_runner.shape(dead_letters={"topic": letters, "ratio_max": 1.0})
    member = async_runner.start(shape, until="end")
    eventually(lambda: len(world.begun()) == 5, "all calls run")
    os.kill(world.broker.pid, signal.SIGSTOP)
    try:
        release.touch()
        eventually(lambda: len(world.events(Ended)) == 5, "all calls have failed")
        assert world.settled() == {}
    finally:
        os.kill(world.broker.pid, signal.SIGCONT)
    assert member.wait() == 0, member.said()
    assert len(world.read(letters)) == 5
    world.accepts(records=5, duplicates_max=0)
