"""A member that is frozen past its session and thawed: the limit of what a client can promise, measured.

Calls that it had begun end when it thaws, and it may begin a few more before it learns that it was expelled; outputs
that its producer had been handed still leave. All of that is counted apart (`frozen=` of the oracle). Nothing of it is
committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract_pipelines import Shape, Step
from contract_runner import Runner
from contract_world import Given, World, eventually

from anabranch import Broker
from anabranch.core.history import Committed, Ended, Settled
from storm import say

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 600
KEYS = 60


def test_nothing_of_a_member_frozen_past_its_session_is_committed(tmp_path: Path) -> None:
    """What would go wrong: the thawed member commits what it remembers, and takes back the progress of the new owner,
    or it goes on as if nothing had happened and two members work on one key for good.
    """
    with Broker() as broker:
        world = World(broker.bootstrap, tmp_path, broker=broker)
        runner = Runner("async", world)
        try:
            freeze_and_thaw(world, runner)
        finally:
            runner.discard()
            world.close()


def freeze_and_thaw(world: World, runner: Runner) -> None:
    """Freeze the only member in the middle of its calls, let a second one take over, thaw the first."""
    world.create(4)
    out = world.create(4, topic=f"{world.topic}-out")
    world.send(Given(b"key-%d" % (n % KEYS), {"sleep_s": 0.02, "answer": str(n)}, n % KEYS % 4) for n in range(RECORDS))
    shape = Shape(world.group, world.topic, steps=(Step(concurrency=16),), write=out)
    frozen = runner.start_process(shape, member="frozen", session_timeout_s=1.5)
    eventually(lambda: len(world.settled()) > 50, "the first member works")
    frozen.freeze()
    before = len(world.events(Settled))
    second = runner.start_process(shape, member="second", session_timeout_s=6.0)
    ends = world.ends()
    eventually(lambda: world.positions() == ends, "the second member has done all the rest")
    stored = world.positions()
    committed = [event for event in world.events(Committed) if event.member == "frozen"]
    frozen.thaw()
    ended = len([event for event in world.events(Ended) if event.member == "frozen"])
    eventually(lambda: frozen.statistics().get("partitions") or not frozen.alive, "the thawed member is back, or gone")
    late = [event for event in world.events(Ended) if event.member == "frozen"][ended:]
    assert world.positions() == stored
    for event in [event for event in world.events(Committed) if event.member == "frozen"][len(committed) :]:
        assert event.position >= stored[event.partition], "the thawed member took progress back"
    for member in (frozen, second):
        member.stop()
        assert member.wait() == 0, member.said()
    verdict = world.accepts(records=RECORDS, frozen={"frozen"})
    outputs = len(world.read(out))
    say(
        f"{before} settled before the freeze; after the thaw {len(late)} late calls ended, {outputs - RECORDS} outputs "
        f"are there twice; {verdict.line()}"
    )
