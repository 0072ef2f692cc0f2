"""Workers whose JVM and daemon were killed (fault 22): none of them begins a call."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from contract_pipelines import Step
from contract_world import eventually
from process_tree import send
from spark_cluster import CLUSTER, CONF, MEMBERS, placed
from spark_ordeal import calls_begun_after, wait_until_gone

import anabranch
from anabranch.spark.lease import DURATION_S

if TYPE_CHECKING:
    from contract_spark import SparkProcessMember
    from spark_ordeal import Ordeal
    from torture_form import Torture

pytestmark = pytest.mark.xdist_group("spark processes")

RECORDS = 4000
SOURCE = Path(anabranch.__file__).parents[1]
HALTED = 4
HERE = str(Path(__file__).parent)
LONELY = {"spark.python.daemon.module": "lonely_daemon"}
LONELY_EXECUTORS = {**LONELY, "spark.executorEnv.PYTHONPATH": os.pathsep.join([HERE, str(SOURCE)])}
SLACK_S = 0.3
"""Between the look at the lease and the line in the history, on a machine that does something else too."""
GONE_S_MAX = 60.0


@pytest.fixture
def _lonely_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark find the daemon of the tests."""
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)


def start_working(ordeal: Ordeal, **options: object) -> tuple[SparkProcessMember, list[int]]:
    """Start a run with work for many seconds; answer it with its workers."""
    ordeal.notes = ordeal.folder / "notes"
    ordeal.send(RECORDS, sleep_s=0.05)
    shape = ordeal.shape(steps=(Step(concurrency=8),), commit={"interval_s": 0.5})
    run = ordeal.start("orphaned", shape=shape, **options)
    eventually(lambda: run.statistics().get("settled", 0) > 50, "the members work", 60)
    return run, [each["pid"] for each in run.statistics()["members"].values()]


def test_no_call_begins_after_jvm_and_daemon_were_killed(torture: Torture, ordeal: Ordeal) -> None:
    """JVM and daemon are killed together: the kernel ends the workers with their daemon, and the driver says so.

    What would go wrong: workers that nobody supervises go on calling handlers, beside those of the next run.
    """
    run, workers = start_working(ordeal)
    killed = [each.pid for each in (*run.tree.daemons(), *run.tree.jvms())]
    assert len(killed) == 2
    send(signal.SIGKILL, *killed)
    died_ns = wait_until_gone(killed, 10)
    gone_ns = wait_until_gone(workers, 10)
    late = calls_begun_after(ordeal.folder / "notes", died_ns, workers)
    code = run.wait()
    torture.say(f"workers were gone {(gone_ns - died_ns) / 1e6:.0f} ms after their daemon; {len(late)} calls began")
    assert late == []
    assert code == HALTED, run.said()
    assert "the Spark session of group" in run.said()
    ordeal.world.deaths |= dict.fromkeys(workers, gone_ns)
    ordeal.weigh(gone_ns)
    if torture.full:
        ordeal.finish_apart()
        ordeal.judged()


@pytest.mark.usefixtures("_lonely_path")
@pytest.mark.parametrize("driver", ["driver lives", "driver killed"])
def test_without_the_signal_no_call_begins_after_one_lease(torture: Torture, ordeal: Ordeal, driver: str) -> None:
    """The same with the parent-death signal disabled from outside: workers live on, and begin nothing after a lease.

    With the driver alive they are told to stop; with the driver killed nobody answers them, and their lease ends.
    """
    if not torture.full:
        pytest.skip("in make torture-spark")
    run, workers = start_working(ordeal, conf=LONELY)
    killed = [each.pid for each in (*run.tree.daemons(), *run.tree.jvms())]
    assert len(killed) == 2
    if driver == "driver killed":
        killed.append(run.pid)
    send(signal.SIGKILL, *killed)
    died_ns = time.monotonic_ns()
    alive = {each.pid for each in run.tree.processes()} & set(workers)
    assert alive, "the workers died with their daemon: the signal was not disabled"
    gone_ns = wait_until_gone(workers, GONE_S_MAX)
    late = calls_begun_after(ordeal.folder / "notes", died_ns, workers)
    run.wait()
    torture.say(
        f"{driver}: {len(alive)} workers lived on for {(gone_ns - died_ns) / 1e9:.1f} s and began {len(late)} calls, "
        f"the last {max(late, default=0):.2f} s after the kill (lease {DURATION_S:g} s)"
    )
    assert max(late, default=0) < DURATION_S + SLACK_S
    ordeal.world.deaths |= dict.fromkeys(workers, gone_ns)
    ordeal.weigh(gone_ns)
    ordeal.finish_apart()
    ordeal.judged()


def test_members_of_a_frozen_driver_begin_nothing_after_one_lease(torture: Torture, ordeal: Ordeal) -> None:
    """The driver's process is stopped in its tracks: nobody answers the members, and their lease ends.

    When it thaws, Spark has started those members again that gave up meanwhile, and the run goes on.
    """
    if not torture.full:
        pytest.skip("in make torture-spark")
    run, workers = start_working(ordeal)
    run.freeze()
    frozen_ns = time.monotonic_ns()
    time.sleep(DURATION_S + 4.0)  # nothing but time ends a lease
    thawed_ns = time.monotonic_ns()
    run.thaw()
    late = [at_s for at_s in calls_begun_after(ordeal.folder / "notes", frozen_ns, workers) if at_s < DURATION_S + 4.0]
    torture.say(
        f"driver frozen for {(thawed_ns - frozen_ns) / 1e9:.1f} s: members began {len(late)} calls meanwhile, the last "
        f"{max(late, default=0):.2f} s after the freeze (lease {DURATION_S:g} s)"
    )
    assert max(late, default=0) < DURATION_S + SLACK_S
    ordeal.release.touch()
    eventually(lambda: ordeal.world.positions() == ordeal.world.ends(), "all is done", 240)
    run.stop()
    assert run.wait() == 0, run.said()
    ordeal.judged(weighed=False)


@pytest.mark.usefixtures("_lonely_path")
def test_an_orphan_on_a_cluster_begins_nothing_when_its_successor_is_there(torture: Torture, ordeal: Ordeal) -> None:
    """An executor's JVM and daemon are killed, the signal is disabled: its workers can still reach the driver.

    What would go wrong: the driver goes on renewing the lease of a worker that Spark has replaced, and both work on
    the same keys until the broker's word that it is fenced has reached it.
    """
    if not torture.full:
        pytest.skip("in make torture-spark")
    run, _ = start_working(ordeal, conf={**CONF, **LONELY_EXECUTORS}, master=CLUSTER, members=MEMBERS)
    executor, names = min(placed(run).items())
    before = run.statistics()["members"]
    orphans = [before[name]["pid"] for name in names]
    daemons = [each.pid for each in run.tree.daemons() if each.parent == executor]
    send(signal.SIGKILL, executor, *daemons)
    died_ns = time.monotonic_ns()
    assert {each.pid for each in run.tree.processes()} & set(orphans), "the signal was not disabled"
    gone_ns = wait_until_gone(orphans, GONE_S_MAX)
    late = calls_begun_after(ordeal.folder / "notes", died_ns, orphans)
    torture.say(
        f"{len(orphans)} orphans lived on for {(gone_ns - died_ns) / 1e9:.1f} s and began {len(late)} calls, the last "
        f"{max(late, default=0):.2f} s after the kill"
    )
    ordeal.world.deaths |= dict.fromkeys(orphans, gone_ns)
    ordeal.weigh(gone_ns)
    ordeal.release.touch()
    eventually(lambda: ordeal.world.positions() == ordeal.world.ends(), "all is done", 240)
    run.stop()
    assert run.wait() == 0, run.said()
    frozen = {f"{ordeal.world.group}-{name}-{pid}" for name, pid in zip(names, orphans, strict=True)}
    verdict = ordeal.judged(weighed=False, frozen=frozen)
    assert max(late, default=0) < DURATION_S + SLACK_S
    torture.say(f"counted apart, of the orphans: {verdict.late}")
