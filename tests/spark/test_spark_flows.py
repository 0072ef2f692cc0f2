"""A pipeline on Spark does what it does in one process: to the end, through failures, and with other engines."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from contract_pipelines import Step, build
from contract_world import Given, eventually
from spark_world import RestartableBroker, SparkWorld, ended, member_pids

from anabranch.core.history import Settled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anabranch import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]


@pytest.fixture
def world(anabranch_broker: Broker, tmp_path: Path) -> Iterator[SparkWorld]:
    made = SparkWorld(anabranch_broker.bootstrap, tmp_path, broker=anabranch_broker)
    yield made
    made.close()


def records(count: int, keys: int = 20, **script: object) -> list[Given]:
    """Records of so many keys over four partitions, each with its number as its answer."""
    return [Given(b"key-%d" % (n % keys), {"answer": str(n), **script}, n % keys % 4) for n in range(count)]


def test_a_run_to_the_end_settles_every_record_and_writes_outputs_and_dead_letters(world: SparkWorld) -> None:
    """Failures are retried, poison goes to the dead letters, the rest to the topic; all is committed, in order."""
    world.create(4)
    out, dead = world.create(4, topic=f"{world.topic}-out"), world.create(1, topic=f"{world.topic}-dead")
    plain = records(300)
    failing = [Given(b"flaky-%d" % n, {"fail_times": 2, "answer": "late"}, n % 4) for n in range(20)]
    poison = [Given(b"bad-%d" % n, {"raise": "poison"}, n % 4) for n in range(5)]
    world.send([*plain, *failing, *poison])
    run = world.start(world.shape(write=out, dead_letters={"topic": dead}), until="end")
    assert ended(run) == 0
    assert run.result.reason == "done"
    world.accepts(duplicates_max=0)
    assert world.positions() == world.ends()
    assert len(world.read(out)) == 320
    assert len(world.read(dead)) == 5
    statistics = run.statistics()
    assert (statistics["handled"], statistics["dead"], statistics["retries"]) == (320, 5, 40)
    assert statistics["state"] == "ended"
    assert [each["state"] for each in statistics["members"].values()] == ["ended", "ended"]
    assert world.members() == 0, "the places of the members are free"


def test_a_run_that_is_stopped_goes_on_where_it_was_on_any_engine(world: SparkWorld) -> None:
    """A third on Spark, a third in one process, the rest on Spark: nothing lost or reordered, and nothing twice either,
    because a stop drains. Each engine has the partitions at once: the places of the members before it are free.
    """
    world.create(4)
    world.send(records(600, sleep_s=0.02))
    shape = world.shape(steps=(Step(concurrency=8),))
    first = world.start(shape)
    eventually(lambda: len(world.settled()) > 100, "Spark has done its part")
    first.stop()
    assert ended(first) == 0
    assert first.result.reason == "stopped"
    assert world.members() == 0
    second = world.start_async(shape)
    done = len(world.settled())
    eventually(lambda: len(world.settled()) > done + 100, "one process has done its part")
    second.stop()
    assert ended(second) == 0
    assert len(world.settled()) < 600
    third = world.start(shape, until="end")
    assert ended(third) == 0
    world.accepts(duplicates_max=0)
    assert world.positions() == world.ends()


def test_spark_and_one_process_share_a_group(world: SparkWorld) -> None:
    """Both work at the same time, on partitions of their own; when Spark stops the other one has them all."""
    world.create(4)
    world.send(records(100, sleep_s=0.01))
    shape = world.shape(steps=(Step(concurrency=8),))
    here = world.start_async(shape)
    there = world.start(shape, members=1)
    eventually(lambda: 0 < len(here.statistics()["partitions"]) < 4, "this process shares")
    eventually(lambda: 0 < len(there.statistics()["partitions"]) < 4, "Spark has its share")
    world.send(records(200, sleep_s=0.01))
    there.stop()
    assert ended(there) == 0
    eventually(lambda: len(here.statistics()["partitions"]) == 4, "this process has all partitions again")
    eventually(lambda: world.positions() == world.ends(), "everything is committed")
    here.stop()
    assert ended(here) == 0
    assert {event.member for event in world.events(Settled)} == {"async", f"{world.group}-0"}
    world.accepts()


def test_partitions_that_are_added_are_read_by_the_members(world: SparkWorld) -> None:
    """A topic grows from two to four partitions while two members read it: records of the new ones are settled."""
    world.create(2)
    run = world.start()
    member_pids(run)
    world.add_partitions(4)
    world.send([Given(b"key-%d" % n, {"answer": "1"}, n % 4) for n in range(40)])
    eventually(lambda: len(world.settled()) == 40, "records of all four partitions are settled")
    run.stop()
    assert ended(run) == 0
    assert world.positions() == world.ends()
    world.accepts(duplicates_max=0)


def test_a_broker_that_is_killed_and_comes_back_costs_nothing(tmp_path: Path) -> None:
    """Members wait for the broker and go on; none of them is started again."""
    with RestartableBroker(tmp_path / "data", flush="os") as broker:
        world = SparkWorld(broker.bootstrap, tmp_path)
        world.create(4)
        world.send(records(400, sleep_s=0.02))
        run = world.start(world.shape(steps=(Step(concurrency=4),)), until="end", session_timeout_s=10)
        eventually(lambda: len(world.settled()) > 50, "members work")
        broker.restart("kill -9")
        assert ended(run) == 0
        assert [each["starts"] for each in run.statistics()["members"].values()] == [1, 1]
        assert world.positions() == world.ends()
        world.accepts()
        world.close()


def test_an_end_that_is_reached_already_needs_no_members(world: SparkWorld) -> None:
    """`until="end"` on an empty topic is done at once."""
    world.create(4)
    run = world.start(until="end")
    assert ended(run) == 0
    assert run.result.reason == "done"
    assert run.statistics()["members"] == {}


def test_a_running_event_loop_may_have_a_run_inside_a_block(world: SparkWorld) -> None:
    """`running` starts, gives the handle, and stops at the end of the block."""
    world.create(4)
    world.send(records(40))

    async def main() -> Any:
        async with build(world.shape()).running(**world.options()) as run:
            while len(world.settled()) < 40:
                await asyncio.sleep(0.05)
        return run

    run = asyncio.run(main())
    assert run.result.reason == "stopped"
    assert run.statistics()["handled"] == 40
    assert world.positions() == world.ends()
