"""Fault 22: a member that is killed while partitions move leaves none of them without an owner."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from contract_world import Given, eventually
from spark_world import SparkWorld, ended, member_pids

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anabranch import Broker
    from anabranch.spark.run import SparkRun

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]


@pytest.fixture
def world(anabranch_broker: Broker, tmp_path: Path) -> Iterator[SparkWorld]:
    made = SparkWorld(anabranch_broker.bootstrap, tmp_path, broker=anabranch_broker)
    yield made
    made.close()


def test_partitions_that_a_killed_member_had_just_given_up_are_shared_out_again(world: SparkWorld) -> None:
    """A member that drains two partitions for somebody who joins is killed. It comes back to the other two, as static
    members do, without a new generation, in which somebody would have got the first two: the run sees to that.
    """
    world.create(4)
    flag = world.flag("released")
    world.send(Given(b"held-%d" % n, {"hold_until": str(flag)}, n) for n in range(4))
    run = world.start(members=1, grace_s=4.0, session_timeout_s=30.0)
    (pid,) = member_pids(run, 1)
    eventually(lambda: len(world.begun()) == 4, "a call is held in each partition")
    other = world.start_async(grace_s=0.5)
    eventually(lambda: "draining" in states(run), "partitions are being given up")
    os.kill(pid, signal.SIGKILL)
    flag.touch()
    eventually(lambda: run.statistics()["members"]["0"]["starts"] == 2, "it was started again")
    world.send(Given(b"new-%d" % n, {}, n) for n in range(4))
    eventually(lambda: world.positions() == world.ends(), "all partitions are read", 60)
    for each in (run, other):
        each.stop()
        assert ended(each) == 0
    world.accepts()


def states(run: SparkRun) -> set[str]:
    """Answer how partitions are, in the words of their owners."""
    return {each["phase"] for each in run.statistics()["partitions"].values()}
