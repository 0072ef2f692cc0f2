"""An executor that is frozen with its Python workers, past the session time-out, and thawed (fault 22)."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from contract_world import eventually
from process_tree import send
from spark_cluster import CLUSTER, CONF, MEMBERS, placed
from spark_ordeal import calls_begun_after

from anabranch.core.history import Committed, Ended, Settled
from anabranch.testing.history import read_history

if TYPE_CHECKING:
    from collections.abc import Collection

    from spark_ordeal import Ordeal
    from torture_form import Torture

pytestmark = pytest.mark.xdist_group("spark processes")

SESSION_S = 3.0
RECORDS = 2000
DONE_S_MAX = 120.0


def test_nothing_that_ended_after_the_freeze_is_committed_by_a_frozen_executor(
    torture: Torture, ordeal: Ordeal
) -> None:
    """One of two executors is stopped in its tracks; the members of the other take its partitions; then it thaws.

    What would go wrong: the thawed members commit what they remember, take back the progress of the new owners, or go
    on as if nothing had happened.
    """
    if not torture.full:
        pytest.skip("in make torture-spark")
    ordeal.notes = ordeal.folder / "notes"
    ordeal.send(RECORDS, sleep_s=0.05)
    ordeal.release.touch()
    run = ordeal.start("cluster", master=CLUSTER, conf=CONF, members=MEMBERS, session_timeout_s=SESSION_S)
    eventually(lambda: run.statistics().get("settled", 0) > 50, "the members work", 60)
    executor, names = min(eventually(lambda: placed(run), "executors have members").items())
    members = run.statistics()["members"]
    frozen = {f"{ordeal.world.group}-{name}-{members[name]['pid']}": members[name]["pid"] for name in names}
    processes = [each.pid for each in run.tree.below(executor)]
    send(signal.SIGSTOP, *processes)
    frozen_ns = time.monotonic_ns()
    begun = time.monotonic()
    try:
        ends = ordeal.world.ends()
        eventually(lambda: ordeal.world.positions() == ends, "the other executor's members did the rest", DONE_S_MAX)
        away_s = time.monotonic() - begun
        assert away_s > SESSION_S, "it was thawed within its session"
    finally:
        send(signal.SIGCONT, *processes)
    thawed_ns = time.monotonic_ns()
    eventually(
        lambda: all(each["partitions"] for each in run.statistics()["members"].values()),
        "all members have partitions again",
        DONE_S_MAX,
    )
    committed = commits_of(ordeal, frozen.values(), frozen_ns)
    assert all(position >= ends[partition] for partition, position in committed), f"it committed {committed}"
    assert ordeal.world.positions() == ends
    ended, settled = ended_after(ordeal, frozen.values(), frozen_ns)
    begun_late = calls_begun_after(ordeal.notes, thawed_ns, frozen.values())
    ordeal.send(200)
    ends = ordeal.world.ends()
    eventually(lambda: ordeal.world.positions() == ends, "all members go on together", DONE_S_MAX)
    starts = [each["starts"] for each in run.statistics()["members"].values()]
    run.stop()
    assert run.wait() == 0, run.said()
    torture.say(
        f"{len(names)} members frozen for {away_s:.1f} s; after that {ended} of their calls ended, {settled} were "
        f"settled, {len(begun_late)} began, {len(committed)} positions were committed; members started {starts}"
    )
    ordeal.judged(weighed=False, frozen=set(frozen))


def commits_of(ordeal: Ordeal, pids: Collection[int], since_ns: int) -> list[tuple[int, int]]:
    """Answer what processes have committed since a moment: partitions and positions."""
    return [
        (each.partition, each.position)
        for batch in read_history(ordeal.world.histories)
        if batch.time_ns > since_ns and batch.process.pid in pids
        for each in batch.events
        if isinstance(each, Committed)
    ]


def ended_after(ordeal: Ordeal, pids: Collection[int], since_ns: int) -> tuple[int, int]:
    """Answer how many calls of processes ended since a moment, and how many records they settled."""
    counted = {Ended: 0, Settled: 0}
    for batch in read_history(ordeal.world.histories):
        if batch.time_ns > since_ns and batch.process.pid in pids:
            for each in batch.events:
                if isinstance(each, Ended | Settled):
                    counted[type(each)] += 1
    return counted[Ended], counted[Settled]
