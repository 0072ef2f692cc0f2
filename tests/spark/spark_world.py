"""The world of a test on Spark: that of the contract suite, with runs that have members."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract_pipelines import QUICK_CLIENT, Shape, build
from contract_world import World, eventually

from anabranch.core.errors import AnabranchError
from anabranch.testing.history import HistoryWriter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from restartable_broker import RestartableBroker

if TYPE_CHECKING:
    from anabranch.runtime.run import Run
    from anabranch.spark.run import SparkRun

__all__ = ["RestartableBroker", "SparkWorld", "ended", "is_alive", "member_pids"]

END_S_MAX = 60.0


class SparkWorld(World):
    """One topic and one group, on Spark."""

    def shape(self, **fields: Any) -> Shape:
        """Describe a pipeline over the test's topic and group."""
        return Shape(**{"group": self.group, "topic": self.topic, **fields})

    def options(self, **changed: Any) -> dict[str, Any]:
        """Answer the options of a run on Spark: time-outs that suit a test, and the history of each member."""
        return {
            "engine": "spark",
            "bootstrap": self.bootstrap,
            "members": 2,
            "state_dir": self.folder / "state",
            "recorder": partial(HistoryWriter, self.histories),
            "kafka": QUICK_CLIENT,
            "session_timeout_s": 3.0,
            "grace_s": 2.0,
            "drain_s": 10.0,
            **changed,
        }

    def start(self, shape: Shape | None = None, **options: Any) -> SparkRun:
        """Start a run on Spark in this process."""
        run: Any = build(shape or self.shape()).start(**self.options(**options))
        return run

    def start_async(self, shape: Shape | None = None, member: str = "async", **options: Any) -> Run:
        """Start a run in this process, without Spark."""
        recorder = HistoryWriter(self.histories, member)
        given = self.options(engine="async", recorder=recorder, member=member, **options)
        del given["members"]
        return build(shape or self.shape()).start(**given)


def ended(run: Any) -> int:
    """Wait for the end of a run and answer its exit code, whatever it was; pytest shows its sentence if need be."""
    try:
        assert run.join(END_S_MAX), f"the run did not end: {run.statistics()}"
    except AnabranchError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n{error.__cause__ or ''}\n")
    return int(run.result.exit_code)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def member_pids(run: Any, count: int = 2) -> list[int]:
    """Wait until so many members work, and answer their processes."""

    def working() -> list[int]:
        members = run.statistics()["members"].values()
        return [each["pid"] for each in members if each["state"] == "running" and each["partitions"]]

    return eventually(lambda: pids if len(pids := working()) == count else None, f"{count} members have partitions")
