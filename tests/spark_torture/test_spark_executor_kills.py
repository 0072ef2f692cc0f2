"""kill -9 of executors on a cluster, again and again, while the driver and the other executors go on (fault 22)."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from contract_world import eventually
from process_tree import send
from spark_cluster import CLUSTER, CONF, placed
from spark_ordeal import wait_until_gone

if TYPE_CHECKING:
    from contract_spark import SparkProcessMember
    from spark_ordeal import Ordeal
    from torture_form import Torture

pytestmark = pytest.mark.xdist_group("spark processes")

BACK_S_MAX = 60.0
END_S_MAX = 240.0
ROUND = 800
MEMBERS = 2
"""So there is room for them on the executor that is left, and they need not wait for a new one."""


def test_executors_that_are_killed_lose_skip_and_overlap_nothing(torture: Torture, ordeal: Ordeal) -> None:
    """One of two executors is killed at random moments; Spark starts its members again, with their partitions.

    What would go wrong: the members of the killed executor wait for their session to end, or come back beside a worker
    that still runs; its partitions are read from too far on; Spark gives up on the job.
    """
    ordeal.send(ROUND)
    run = ordeal.start("cluster", master=CLUSTER, conf=CONF, members=MEMBERS)
    back_s = []
    for number in range(1, torture.pick(1, 10) + 1):
        ordeal.send(ROUND)
        target = settled(run) + torture.random.randrange(1, ROUND // 2)
        eventually(lambda target=target: settled(run) >= target, "the members work", 60)
        if torture.random.random() < 0.6:  # else a kill may well come while partitions move
            eventually(lambda: all_have_partitions(run), "all members have partitions", BACK_S_MAX)
        back_s.append(kill_one(torture, ordeal, run, number))
    ordeal.wait_until_done(END_S_MAX)
    ordeal.release.touch()
    eventually(lambda: ordeal.world.positions() == ordeal.world.ends(), "all is committed", END_S_MAX)
    starts = [each["starts"] for each in run.statistics()["members"].values()]
    run.stop()
    assert run.wait() == 0, run.said()
    torture.say(
        f"members were started {starts} times and had their partitions back {min(back_s):.1f} to {max(back_s):.1f} s "
        "after a kill"
    )
    ordeal.judged()


def kill_one(torture: Torture, ordeal: Ordeal, run: SparkProcessMember, number: int) -> float:
    """Kill one executor that has members, see them back, and answer how long that took."""
    executor = torture.random.choice(sorted(eventually(lambda: placed(run), "executors have members", BACK_S_MAX)))
    here = placed(run)[executor]
    before = run.statistics()["members"]
    pids = [each.pid for each in run.tree.below(executor)]
    begun = time.monotonic()
    send(signal.SIGKILL, executor)
    died_ns = wait_until_gone(pids, BACK_S_MAX)
    ordeal.world.deaths |= dict.fromkeys(pids, died_ns)
    cost = ordeal.weigh(died_ns, pids)
    gone_s = time.monotonic() - begun
    eventually(lambda: is_back(run.statistics(), before, here), "its members have their partitions back", BACK_S_MAX)
    back_s = time.monotonic() - begun
    torture.say(
        f"kill {number}: an executor with members {', '.join(here)}; its workers were gone after {gone_s:.2f} s, the "
        f"members back after {back_s:.1f} s; {cost.uncovered} in no commit, {cost.in_flight} in flight"
    )
    return back_s


def is_back(told: dict[str, Any], before: dict[str, Any], names: list[str]) -> bool:
    """Look whether members were started again and have partitions."""
    members = told.get("members", {})
    return all(
        name in members and members[name]["starts"] > before[name]["starts"] and members[name]["partitions"]
        for name in names
    )


def all_have_partitions(run: SparkProcessMember) -> bool:
    members = run.statistics().get("members", {}).values()
    return bool(members) and all(each["partitions"] for each in members)


def settled(run: SparkProcessMember) -> int:
    return int(run.statistics().get("settled", 0))
