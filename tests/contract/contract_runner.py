"""Members under test: start, stop, kill -9, freeze and restart them, on any engine, here or in processes of their own.

A test is written against `Runner` and `Member` alone. An engine is under contract when its runner can start a member in
a process: a new engine adds its name to ENGINES in `conftest.py` and, where `run()` is not enough, a child of its own.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from contract_pipelines import Launch, Shape, start
from process_tree import MARK

from anabranch.runtime.status import ask
from anabranch.testing.history import HistoryWriter

if TYPE_CHECKING:
    from contract_world import World

CHILD = Path(__file__).resolve().with_name("contract_child.py")
JOIN_S_MAX = 40.0
MEMBERS = 2
"""Of a run on Spark, unless a test says otherwise: bounds are each member's own, and who joins needs a share."""


class Member(Protocol):
    """One running pipeline."""

    name: str

    def stop(self) -> None:
        """Ask it to drain, commit and leave; returns at once."""

    def wait(self, timeout_s: float = JOIN_S_MAX) -> int:
        """Wait for its end and answer the exit code."""

    def said(self) -> str:
        """Answer the sentence with which it ended, if it had one."""

    def statistics(self) -> dict[str, Any]:
        """Answer what it tells about itself now."""


class LocalMember:
    """A run in this process."""

    def __init__(self, launch: Launch) -> None:
        self.name = launch.member
        self._recorder = HistoryWriter(launch.history, launch.member)
        self._run = start(launch, self._recorder)
        self._said = ""

    def stop(self) -> None:
        self._run.stop()

    def wait(self, timeout_s: float = JOIN_S_MAX) -> int:
        try:
            assert self._run.join(timeout_s), f"{self.name} did not end within {timeout_s:g} s"
        except Exception as error:  # a halt, an unreachable broker: the result has the code
            if isinstance(error, AssertionError):
                raise
            self._said = str(error)
        return int(self._run.result.exit_code)

    def said(self) -> str:
        return self._said

    def statistics(self) -> dict[str, Any]:
        return dict(self._run.statistics())

    def discard(self) -> None:
        """Leave nothing behind."""
        with suppress(Exception):
            self._run.terminate()
            self._run.join(5)
        self._recorder.close()


class ProcessMember:
    """A run in a process of its own."""

    def __init__(self, launch: Launch, folder: Path, mark: str = "") -> None:
        self.name = launch.member
        self._launch = launch
        self._log = folder / f"{launch.member}.stderr"
        stored = folder / f"{launch.member}.json"
        launch.write_to(stored)
        path = os.pathsep.join(filter(None, [str(CHILD.parent), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, MARK: mark}
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(CHILD), str(stored)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                process_group=0,
            )
        self.pid = self._process.pid
        self.killed_ns: int | None = None

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it with kill -9."""
        self._process.kill()
        self._process.wait()
        self.killed_ns = time.monotonic_ns()

    def freeze(self) -> None:
        """Stop it in its tracks, as a debugger, a swapping machine or a virtual machine's migration would."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def wait(self, timeout_s: float = JOIN_S_MAX) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {timeout_s:g} s; it said:\n{self.said()}") from None

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def statistics(self) -> dict[str, Any]:
        """Ask its status socket; empty while it does not answer."""
        try:
            return ask(Path(self._launch.state_dir) / f"{self.pid}.sock")
        except OSError:
            return {}

    def discard(self) -> None:
        """Leave nothing behind."""
        self._process.kill()
        self._process.wait()


class Runner:
    """Starts members of one test on one engine, and ends them all."""

    def __init__(self, engine: str, world: World) -> None:
        self.engine = engine
        self.world = world
        self._members: list[LocalMember | ProcessMember] = []

    def shape(self, **fields: Any) -> Shape:
        """Describe a pipeline over the test's topic and group."""
        return Shape(**{"group": self.world.group, "topic": self.world.topic, **fields})

    def start(self, shape: Shape | None = None, *, member: str = "a", **options: Any) -> LocalMember:
        """Start a member in this process, or wherever is cheapest for the engine."""
        launch = self._launch(shape, member, options)
        made = self._start_on_spark(launch) if self.engine == "spark" else LocalMember(launch)
        self._members.append(made)
        return made

    def _start_on_spark(self, launch: Launch) -> LocalMember:
        from contract_spark import SparkMember

        if any(isinstance(each, SparkMember) and each.alive for each in self._members):
            return LocalMember(replace(launch, engine="async"))
        return SparkMember(launch)

    def start_process(self, shape: Shape | None = None, *, member: str = "a", **options: Any) -> ProcessMember:
        """Start a member in a process of its own, which can be killed and frozen."""
        launch = self._launch(shape, member, options)
        if self.engine == "spark":
            from contract_spark import SparkProcessMember

            made: ProcessMember = SparkProcessMember(launch, self.world, secrets.token_hex(8))
        else:
            made = ProcessMember(launch, self.world.folder)
        self._members.append(made)
        return made

    def run(self, shape: Shape | None = None, *, code: int = 0, **options: Any) -> LocalMember:
        """Run to the end of the topic, expecting an exit code."""
        member = self.start(shape, **{"until": "end", **options})
        ended = member.wait()
        assert ended == code, f"exit code {ended}, not {code}: {member.said()}"
        return member

    def discard(self) -> None:
        """End whatever still runs."""
        for member in self._members:
            member.discard()

    def _launch(self, shape: Shape | None, member: str, options: dict[str, Any]) -> Launch:
        launch = Launch(
            shape=shape or self.shape(),
            engine=self.engine,
            bootstrap=self.world.bootstrap,
            member=member,
            history=str(self.world.histories),
            state_dir=str(self.world.folder / "state"),
        )
        kafka = {**launch.kafka, **options.pop("kafka", {})}
        spark = {"members": options.pop("members", MEMBERS), **options.pop("spark", {})}
        return replace(launch, kafka=kafka, spark=spark, **options)
