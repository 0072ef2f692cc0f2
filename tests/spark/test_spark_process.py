"""A Spark run in a process of its own, with a JVM of its own: signals, and kill -9 of the driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from contract_pipelines import Launch
from contract_world import Given, eventually
from spark_world import SparkWorld, is_alive

from anabranch.core.history import Begun
from anabranch.runtime.status import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch import Broker

pytestmark = pytest.mark.xdist_group("spark processes")
CHILD = Path(__file__).with_name("spark_child.py")
START_S_MAX = 90.0


class Child:
    """A driver in a process of its own."""

    def __init__(self, world: SparkWorld, **options: Any) -> None:
        self.world = world
        self._said = world.folder / "child.stderr"
        launch = Launch(
            shape=world.shape(),
            engine="spark",
            bootstrap=world.bootstrap,
            member="",
            history=str(world.histories),
            state_dir=str(world.folder / "state"),
        )
        stored, more = world.folder / "launch.json", world.folder / "more.json"
        replace(launch, drain_s=30.0).write_to(stored)
        more.write_text(json.dumps({"members": 2, **options}), encoding="utf-8")
        path = os.pathsep.join([str(CHILD.parents[1] / "contract"), os.environ.get("PYTHONPATH", "")])
        with self._said.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), str(stored), str(more)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": path},
                process_group=0,
            )

    def statistics(self) -> dict[str, Any]:
        """Ask its status socket; nothing while it does not answer."""
        assert self.process.poll() is None, f"it has ended: {self._said.read_text(encoding='utf-8')}"
        try:
            return ask(self.world.folder / "state" / f"{self.process.pid}.sock")
        except OSError:
            return {}

    def wait(self) -> int:
        """Wait for its end and answer the exit code."""
        return self.process.wait(60)

    def tree(self) -> list[int]:
        """Answer all processes below it: the JVM, Spark's daemon, the workers."""
        found, wanted = [], [self.process.pid]
        while wanted:
            children = Path(f"/proc/{wanted.pop()}/task").glob("*/children")
            below = [int(pid) for each in children for pid in each.read_text(encoding="ascii").split()]
            found += below
            wanted += below
        return found

    def discard(self) -> None:
        """Leave nothing behind."""
        below = self.tree() if self.process.poll() is None else []
        self.process.kill()
        self.process.wait()
        for pid in below:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def world(anabranch_broker: Broker, tmp_path: Path) -> Iterator[SparkWorld]:
    made = SparkWorld(anabranch_broker.bootstrap, tmp_path, broker=anabranch_broker)
    made.create(4)
    yield made
    made.close()


@pytest.fixture
def child(world: SparkWorld) -> Iterator[Child]:
    """A run whose four calls hang until the flag `released` is there."""
    world.send(Given(b"held-%d" % n, {"hold_until": str(world.flag("released"))}, n) for n in range(4))
    world.send(Given(b"held-%d" % n, {}, n) for n in range(4))
    made = Child(world)
    yield made
    made.discard()


def hanging(child: Child) -> dict[str, Any]:
    """Wait until both members have calls that hang."""
    return eventually(
        lambda: told if (told := child.statistics()).get("running") == 4 else None, "calls hang", START_S_MAX
    )


def test_the_first_signal_drains_and_the_run_ends_well(child: Child, world: SparkWorld) -> None:
    """Ctrl-C: calls that had begun end, are committed, and nothing new begins."""
    hanging(child)
    child.process.send_signal(signal.SIGINT)
    eventually(lambda: any(each["state"] == "stopping" for each in child.statistics()["members"].values()), "it drains")
    world.flag("released").touch()
    assert child.wait() == 0
    assert world.positions() == dict.fromkeys(range(4), 1)
    assert world.members() == 0


def test_the_second_signal_forces(child: Child, world: SparkWorld) -> None:
    """Exit code 130 although calls hang; no process is left, and nothing of them is committed."""
    told = hanging(child)
    child.process.send_signal(signal.SIGTERM)
    eventually(lambda: any(each["state"] == "stopping" for each in child.statistics()["members"].values()), "it drains")
    child.process.send_signal(signal.SIGTERM)
    assert child.wait() == 130
    pids = [each["pid"] for each in told["members"].values()]
    eventually(lambda: not any(map(is_alive, pids)), "the members are gone")
    assert all(position == 0 for position in world.positions().values())


def test_members_are_gone_when_the_driver_is_killed_and_the_next_run_does_the_rest(
    child: Child, world: SparkWorld
) -> None:
    """kill -9 of the Python driver: JVM and workers end by themselves, the folder's lock is free, no call begins."""
    told = hanging(child)
    below = child.tree()
    assert {each["pid"] for each in told["members"].values()} <= set(below)
    child.process.kill()
    child.process.wait()
    eventually(lambda: not any(map(is_alive, below)), "JVM, daemon and workers are gone")
    begun = len(world.events(Begun))
    world.flag("released").touch()
    assert begun == len(world.events(Begun)) == 4
    again = Child(world, until="end")
    try:
        assert again.wait() == 0
    finally:
        again.discard()
    assert world.positions() == world.ends()
    world.accepts()
