"""Runs of the Spark benchmark, seen from outside: members on Spark, and as many processes of `engine="async"`.

Processes serve one run after the other on both sides: Spark keeps its Python workers, and so do we keep ours. So what
is measured is neither a cold interpreter nor an allocator that has yet to grow.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from spark_works import OPTIONS, build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from works import Work

MEMBERS = 2
END_S_MAX = 60.0


class Members(Protocol):
    """One run."""

    def settled(self) -> int:
        """Answer how many records are settled."""

    def partitions(self) -> list[int]:
        """Answer how many partitions each member has."""

    def stop(self) -> None:
        """Have it stop."""

    def join(self) -> None:
        """Wait for its end."""


class Engine(Protocol):
    """What can run the works."""

    name: str

    def start(self, work: Work, topic: str, folder: Path, options: dict[str, Any]) -> Members:
        """Start a run; the folder's name is its group."""


class SparkEngine:
    """Members on Spark."""

    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def start(self, work: Work, topic: str, folder: Path, options: dict[str, Any]) -> Members:
        """Start a run in the session."""
        given = {**options, **OPTIONS, "state_dir": folder / "state", "members": MEMBERS, "spark": self._spark}
        return SparkMembers(build(work, folder.name, topic, folder).start(engine="spark", **given))


class SparkMembers:
    """A run on Spark."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def settled(self) -> int:
        """Answer how many records are settled."""
        return int(self._run.statistics()["settled"])

    def partitions(self) -> list[int]:
        """Answer how many partitions each member has."""
        return [len(each["partitions"]) for each in self._run.statistics()["members"].values()]

    def stop(self) -> None:
        """Have it stop."""
        self._run.stop()

    def join(self) -> None:
        """Wait for its end."""
        if not self._run.join(END_S_MAX):
            raise SystemExit(f"the run on Spark did not end: {self._run.statistics()['why']}")


class AsyncEngine:
    """As many processes, which live until `close`."""

    name = "async"

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).parent / "spark_works.py")]
        self._children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            for _ in range(MEMBERS)
        ]

    def start(self, work: Work, topic: str, folder: Path, options: dict[str, Any]) -> Members:
        """Start a run in them."""
        order: dict[str, Any] = {"work": asdict(work), "group": folder.name, "topic": topic, "folder": str(folder)}
        own = (
            {"member": f"{folder.name}-{each}", "state_dir": str(folder / f"state-{each}")} for each in range(MEMBERS)
        )
        members = AsyncMembers(self._children)
        members.order(*({**order, "options": {**options, **each}} for each in own))
        return members

    def close(self) -> None:
        """End the processes."""
        for child in self._children:
            child.terminate()
            child.communicate(timeout=END_S_MAX)


class AsyncMembers:
    """A run of these processes."""

    def __init__(self, children: list[subprocess.Popen[str]]) -> None:
        self._children = children

    def settled(self) -> int:
        """Answer how many records are settled."""
        return sum(each["settled"] for each in self.order({}, {}))

    def partitions(self) -> list[int]:
        """Answer how many partitions each member has."""
        return [each["partitions"] for each in self.order({}, {})]

    def stop(self) -> None:
        """Have it stop."""
        self.order({"stop": True}, {"stop": True})

    def join(self) -> None:
        """Wait for its end."""
        self.order({"join": True}, {"join": True})

    def order(self, *orders: dict[str, Any]) -> list[dict[str, int]]:
        """Give each process an order, then wait for all answers."""
        answers = []
        for child, order in zip(self._children, orders, strict=True):
            assert child.stdin is not None
            child.stdin.write(json.dumps(order) + "\n")
            child.stdin.flush()
        for child in self._children:
            assert child.stdout is not None
            line = child.stdout.readline()
            if not line:
                raise SystemExit(f"a process of the run has failed with exit code {child.wait()}")
            answers.append(json.loads(line))
        return answers
