"""How a run on Spark ends, and what it survives: halts, killed members, another run of its group."""

from __future__ import annotations

import importlib
import os
import signal
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from contract_pipelines import Step, build
from contract_world import Given, eventually
from spark_world import SparkWorld, ended, is_alive, member_pids

from anabranch.core.history import Begun
from anabranch.runtime.status import ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from anabranch import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]


@pytest.fixture
def world(anabranch_broker: Broker, tmp_path: Path) -> Iterator[SparkWorld]:
    made = SparkWorld(anabranch_broker.bootstrap, tmp_path, broker=anabranch_broker)
    yield made
    made.close()


def records(count: int, keys: int = 20, **script: object) -> list[Given]:
    """Records of so many keys over four partitions."""
    return [Given(b"key-%d" % (n % keys), dict(script), n % keys % 4) for n in range(count)]


@pytest.mark.parametrize(("kind", "says"), [("fatal", "told to be fatal"), ("poison", "told to be poison")])
def test_a_halt_ends_the_run_with_its_sentence_and_without_spark_trying_again(
    world: SparkWorld, spark: SparkSession, kind: str, says: str
) -> None:
    """`Fatal`, and poison without dead letters: exit code 4, one call, and the session goes on."""
    world.create(4)
    world.send(records(80))
    world.send([Given(b"bad", {"raise": kind}, 1)])
    run = world.start()
    assert ended(run) == 4
    assert run.result.reason == "halted"
    assert says in str(run.result.error)
    assert "told to be" in str(run.result.error.__cause__), "the traceback of the handler came along"
    assert Counter(event.key for event in world.events(Begun))[b"bad"] == 1
    assert max(each["starts"] for each in run.statistics()["members"].values()) == 1, "nobody was started again"
    assert world.positions()[1] < world.ends()[1]
    assert spark.range(3).count() == 3
    assert world.members() == 0


def test_a_member_that_is_killed_comes_back_with_its_partitions(world: SparkWorld) -> None:
    """Its Python process is killed -9 in the middle of calls: Spark starts it again, static membership gives it its
    partitions back without waiting for the session to end, and nothing is lost, skipped or overlapping.
    """
    world.create(4)
    flag = world.flag("released")
    world.send(records(200, keys=40))
    world.send(Given(b"held-%d" % n, {"hold_until": str(flag)}, n) for n in range(4))
    world.send(records(200, keys=40))
    run = world.start(until="end", session_timeout_s=20)
    member_pids(run)

    def hanging() -> dict[str, Any] | None:
        now = run.statistics()
        shares = [len(each["partitions"]) for each in now["members"].values()]
        return now if now["handled"] == 400 and shares == [2, 2] else None

    told = eventually(hanging, "four calls hang, two in each member")
    os.kill(told["members"]["0"]["pid"], signal.SIGKILL)
    eventually(lambda: run.statistics()["members"]["0"]["starts"] == 2, "it was started again")
    before = told["members"]["0"]["partitions"]
    eventually(lambda: run.statistics()["members"]["0"]["partitions"] == before, "it has its partitions", 15)
    flag.touch()
    assert ended(run) == 0
    world.accepts()
    assert world.positions() == world.ends()
    statistics = run.statistics()
    assert [each["starts"] for each in statistics["members"].values()] == [2, 1]
    assert statistics["handled"] >= 404, "what the killed one had counted is not forgotten"


def test_a_second_run_from_the_same_folder_is_refused(world: SparkWorld) -> None:
    """It names the process that has the folder; the first one does not notice."""
    world.create(4)
    first = world.start()
    member_pids(first)
    second = world.start()
    assert ended(second) == 2
    assert f"another Spark run (process {os.getpid()})" in str(second.result.error)
    assert first.statistics()["state"] == "running"
    first.stop()
    assert ended(first) == 0


def test_a_second_run_from_another_folder_fences_the_first_which_ends_with_a_sentence(world: SparkWorld) -> None:
    """The newer run takes the places of the older one, which tries nothing again and does not free them."""
    world.create(4)
    world.send(records(200, keys=40, sleep_s=0.02))
    older = world.start(world.shape(steps=(Step(concurrency=2),)))
    member_pids(older)
    newer = world.start(world.shape(steps=(Step(concurrency=2),)), state_dir=world.folder / "other")
    assert ended(older) == 4
    assert f"another Spark run uses group {world.group}" in str(older.result.error)
    eventually(lambda: world.positions() == world.ends(), "the newer one has done the rest")
    newer.stop()
    assert ended(newer) == 0
    world.accepts()


def test_calls_that_do_not_end_within_the_drain_make_exit_code_5(world: SparkWorld) -> None:
    """The member ends all the same, and its Python process with it; what is settled is committed."""
    world.create(4)
    world.send([*records(20), Given(b"stuck", {"hold_until": str(world.flag("never")), "stubborn": True}, 2)])
    run = world.start(drain_s=0.5)
    pids = member_pids(run)
    eventually(lambda: len(world.settled()) == 20, "all others are done")
    run.stop()
    assert ended(run) == 5
    eventually(lambda: sum(map(is_alive, pids)) <= 1, "the process with the stuck call is gone")
    assert sum(world.positions().values()) == 20


def test_a_forced_end_waits_for_nothing_and_leaves_no_member(world: SparkWorld) -> None:
    """`terminate` while calls hang: exit code 130, and the Python processes are gone."""
    world.create(4)
    world.send([Given(b"key-%d" % n, {"hold_until": str(world.flag("never"))}, n % 4) for n in range(8)])
    run = world.start()
    pids = member_pids(run)
    eventually(lambda: len(world.begun()) == 8, "calls hang")
    run.terminate()
    assert ended(run) == 130
    eventually(lambda: not any(map(is_alive, pids)), "members are gone")


def test_a_run_that_is_stopped_before_it_is_open_ends_at_once(world: SparkWorld) -> None:
    """Stopping is possible at any moment, also while members are still to come."""
    world.create(4)
    run = world.start()
    run.stop()
    assert ended(run) == 0
    assert run.result.reason == "stopped"
    again = world.start(until="end")
    assert ended(again) == 0


def test_the_driver_tells_about_all_members_on_its_status_socket(world: SparkWorld) -> None:
    """One answer in the shape of any run: partitions of all members, and who they are."""
    world.create(4)
    flag = world.flag("released")
    world.send([*records(40), Given(b"held", {"hold_until": str(flag)}, 3)])
    run = world.start()
    member_pids(run)
    eventually(lambda: run.statistics()["handled"] == 40, "all but one are done")
    told = ask(world.folder / "state" / f"{os.getpid()}.sock")
    assert told["engine_name"] == "spark"
    assert sorted(told["partitions"]) == [f"{world.topic}/{number}" for number in range(4)]
    assert [each["state"] for each in told["members"].values()] == ["running", "running"]
    assert told["running"] == 1
    assert any(f"{world.topic}/3" in sentence for sentence in told["why"])
    flag.touch()
    run.stop()
    assert ended(run) == 0


def test_a_recorder_that_is_not_made_by_a_function_is_refused(world: SparkWorld) -> None:
    """Members are other processes: they cannot share an object of this one."""
    with pytest.raises(Exception, match="give a function that makes the recorder"):
        world.start(recorder=object())


class Unloadable:
    """Cannot be unpickled where the module is missing: stands for an executor without the user's packages."""

    def __call__(self, member: str) -> None:
        raise AssertionError("never called")

    def __reduce__(self) -> tuple[object, ...]:
        return importlib.import_module, ("a_module_that_executors_do_not_have",)


def test_members_that_cannot_even_start_end_the_run_with_what_python_said(world: SparkWorld) -> None:
    """Spark would try it a thousand times; the sentence comes after a few."""
    world.create(4)
    run = world.start(recorder=Unloadable())
    assert ended(run) == 4
    assert "Spark could not start the members" in str(run.result.error)
    assert "a_module_that_executors_do_not_have" in str(run.result.error)


def test_a_pipeline_whose_lifespan_fails_ends_the_run_with_its_sentence(world: SparkWorld) -> None:
    """Opened in the member, told by the driver."""
    world.create(4)

    @asynccontextmanager
    async def open_clients() -> AsyncIterator[None]:
        raise OSError("no such database")
        yield

    pipeline = build(world.shape()).lifespan(open_clients)
    run = pipeline.start(**world.options())
    assert ended(run) == 4
    assert "no such database" in str(run.result.error)
