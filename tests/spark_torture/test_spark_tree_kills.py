"""kill -9 of a whole run on Spark, at random moments (fault 22): driver, JVM, Python daemon and workers."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from contract_world import eventually
from spark_ordeal import wait_for_begin, wait_until_gone

if TYPE_CHECKING:
    from contract_spark import SparkProcessMember
    from spark_ordeal import Ordeal
    from torture_form import Torture

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

ROUND = 1000
"""Records that are new in each round."""


def at_a_random_moment(torture: Torture, run: SparkProcessMember, moment: str) -> str:
    """Wait for a moment while a run starts, works or stops; tell which."""
    chance = torture.random
    if moment == "starting":
        delay_s = chance.random() * 8.0
        time.sleep(delay_s)  # the moment is the point
        return f"{delay_s:.1f} s after its start"
    wait_for_begin(run)
    count = chance.randrange(1, ROUND // 2)
    eventually(lambda: settled(run) >= count, f"{count} are settled", 60)
    if moment == "stopping":
        run.stop()
        delay_s = chance.random() * 0.5
        time.sleep(delay_s)  # the moment is the point
        return f"{delay_s:.2f} s into its stop, {settled(run)} settled"
    return f"{settled(run)} settled"


def settled(run: SparkProcessMember) -> int:
    return int(run.statistics().get("settled", 0))


def test_kill_9_of_the_whole_tree_loses_skips_and_overlaps_nothing(torture: Torture, ordeal: Ordeal) -> None:
    """The whole process tree of a run is killed at random moments, and the next run goes on from the same folder.

    What would go wrong: a position is committed past what was handled, a key goes on without its failed record, the
    state folder or the members' places stay locked, an old worker goes on beside the new one.
    """
    moments = ["working", *torture.random.choices(["starting", "working", "stopping"], (2, 5, 1), k=9)]
    for number, moment in enumerate(moments[: torture.pick(1, 10)], start=1):
        ordeal.send(ROUND)
        run = ordeal.start(f"run-{number}", wait=False)
        told = at_a_random_moment(torture, run, moment)
        run.kill()
        assert run.killed_ns is not None
        cost = ordeal.weigh(run.killed_ns)
        torture.say(
            f"kill {number}, {told}: {cost.settled} settled in all, {cost.uncovered} in no commit, "
            f"{cost.in_flight} in flight"
        )
    ordeal.finish()
    ordeal.judged()


def test_kill_9_of_the_driver_alone_ends_its_members(torture: Torture, ordeal: Ordeal) -> None:
    """Only the driver's Python process is killed: JVM and workers follow it, and the next run loses nothing."""
    for number in range(1, torture.pick(1, 3) + 1):
        if not torture.full:
            pytest.skip("three of them in make torture-spark")
        ordeal.send(ROUND)
        run = ordeal.start(f"run-{number}")
        eventually(lambda run=run: settled(run) >= torture.random.randrange(1, 300), "it works", 60)
        others = [each.pid for each in run.tree.processes() if each.pid != run.pid]
        begun = time.monotonic()
        os.kill(run.pid, signal.SIGKILL)
        died_ns = wait_until_gone(others, 30)
        ordeal.world.deaths |= dict.fromkeys(others, died_ns)
        cost = ordeal.weigh(died_ns)
        torture.say(
            f"kill {number}: all were gone after {time.monotonic() - begun:.1f} s; {cost.settled} settled in all, "
            f"{cost.uncovered} in no commit, {cost.in_flight} in flight"
        )
    ordeal.finish()
    ordeal.judged()
