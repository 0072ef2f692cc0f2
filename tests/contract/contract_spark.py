"""The engine `spark` under contract: a run is one member of the test, however many members it has on Spark.

Runs in this process share its Spark session; one that is to be killed or frozen is a process with a session of its own.
Two runs of one group on Spark fence each other, so what a test starts beside a run on Spark runs on `async`: that is
how partitions move here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from contract_pipelines import recorder_of, start
from contract_runner import LocalMember, ProcessMember
from contract_world import eventually
from process_tree import Tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract_pipelines import Launch
    from contract_world import World

START_S_MAX = 120.0
"""A JVM, a session and Python workers on a machine that does something else too; six seconds when it is idle."""

NOT_ON_SPARK: Mapping[str, str] = {
    "test_c10_markers_and_aborted_records_are_passed": "no Kafka: a scripted source stands in for a member's own",
    "test_c10_compaction_leaves_holes_of_any_size": "no Kafka: a scripted source stands in for a member's own",
    "test_c10_holes_survive_a_revoke_and_a_crash": "no Kafka: a scripted source stands in for a member's own",
    "test_c10_retention_that_moves_the_start_while_nobody_reads": "no Kafka: a scripted source stands in",
    "test_the_carryover_saves_the_work_done_ahead_of_a_stuck_key": "half of it needs a plan that no pipeline has; "
    "what a carryover saves on Spark is counted by the torture",
}
"""Everything else that is written for every engine runs on Spark too."""


class SparkMember(LocalMember):
    """A run on Spark, in the session of this process."""

    def __init__(self, launch: Launch) -> None:
        self.name = launch.member
        self._run: Any = start(launch, recorder_of(launch))
        self._said = ""

    @property
    def alive(self) -> bool:
        return self._run.result.reason == "still running"

    def discard(self) -> None:
        """Leave nothing behind: slots of the session are given back when the run has ended."""
        if self.alive:
            self._run.terminate()
            eventually(lambda: not self.alive, f"{self.name} ends when it is forced")


class SparkProcessMember(ProcessMember):
    """A run on Spark in a process of its own, with a JVM, a Python daemon and workers of its own."""

    def __init__(self, launch: Launch, world: World, mark: str, *, wait: bool = True) -> None:
        self.tree = Tree(mark)
        self._world = world
        super().__init__(launch, world.folder, mark)
        if wait:
            eventually(self.has_begun, f"{self.name} has started", START_S_MAX)

    def has_begun(self) -> bool:
        """Look whether all its members are at work, or it has ended."""
        members = self.statistics().get("members", {}).values()
        return not self.alive or (bool(members) and all(each["state"] == "running" for each in members))

    def statistics(self) -> dict[str, Any]:
        """Ask its status socket. It stops when its members do: the driver says so as soon as it has told them."""
        told = super().statistics()
        states = {each["state"] for each in told.get("members", {}).values()}
        return {**told, "state": "running"} if "running" in states else told

    def kill(self) -> None:
        """End the whole tree with kill -9."""
        self._world.deaths |= self.tree.kill()
        self._process.wait()
        self.killed_ns = time.monotonic_ns()

    def discard(self) -> None:
        """Leave nothing behind."""
        self.tree.kill()
        self._process.wait()
