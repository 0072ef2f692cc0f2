"""Find, kill and freeze all processes of a run on Spark: driver, JVMs, Python daemons and workers.

Spark puts its processes into process groups of their own, and who loses its parent is nobody's child any more. So a
tree is known by a mark in the environment, which every process hands on to those that it starts.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK = "ANABRANCH_TEST_TREE"
GONE_S_MAX = 30.0
_LOOK_S = 0.005


class Found(NamedTuple):
    """One process."""

    pid: int
    parent: int
    command: str

    @property
    def kind(self) -> str:
        """What it is of a run on Spark."""
        if "CoarseGrainedExecutorBackend" in self.command:
            return "executor"
        if "SparkSubmit" in self.command:
            return "jvm"
        if "daemon" in self.command:
            return "daemon"
        return "other"


class Tree:
    """The processes that carry a mark."""

    def __init__(self, mark: str) -> None:
        self.mark = f"{MARK}={mark}".encode()

    def processes(self) -> list[Found]:
        """Answer those that run now; a zombie does not."""
        found = (self._look(Path(entry)) for entry in os.scandir("/proc") if entry.name.isdigit())
        return [each for each in found if each is not None]

    def executors(self) -> list[Found]:
        """Answer the JVMs of executors on a cluster."""
        return [each for each in self.processes() if each.kind == "executor"]

    def jvms(self) -> list[Found]:
        """Answer the JVMs of drivers."""
        return [each for each in self.processes() if each.kind == "jvm"]

    def daemons(self) -> list[Found]:
        """Answer the Python daemons: children of a JVM."""
        listed = self.processes()
        javas = {each.pid for each in listed if each.kind in {"jvm", "executor"}}
        return [each for each in listed if each.kind == "daemon" and each.parent in javas]

    def workers(self) -> list[Found]:
        """Answer the Python workers: forked by a daemon, or what is left of them when it is gone."""
        listed = self.processes()
        daemons = {each.pid for each in self.daemons()}
        return [each for each in listed if each.kind == "daemon" and each.pid not in daemons]

    def below(self, ancestor: int) -> list[Found]:
        """Answer a process of the tree with all that it started and that have not lost it."""
        listed = self.processes()
        inside = {ancestor}
        while grown := {each.pid for each in listed if each.parent in inside} - inside:
            inside |= grown
        return [each for each in listed if each.pid in inside]

    def kill(self) -> dict[int, int]:
        """End them all with kill -9; answer when each was gone at the latest, CLOCK_MONOTONIC in ns."""
        deaths: dict[int, int] = {}
        end = time.monotonic() + GONE_S_MAX
        while listed := self.processes():
            assert time.monotonic() < end, f"these cannot be killed: {listed}"
            send(signal.SIGKILL, *(each.pid for each in listed))
            deaths |= dict.fromkeys((each.pid for each in listed), 0)
            time.sleep(_LOOK_S)
        return dict.fromkeys(deaths, time.monotonic_ns())

    def _look(self, folder: Path) -> Found | None:
        try:
            if self.mark not in (folder / "environ").read_bytes().split(b"\0"):
                return None
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None  # it has ended, or is not ours
        return None if fields[0] == "Z" else Found(int(folder.name), int(fields[1]), command)


def is_gone(pid: int) -> bool:
    """Look whether a process has ended, and has told its children so: what it leaves is a zombie at most."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in {"Z", "X"}


def send(number: signal.Signals, *pids: int) -> None:
    """Send a signal to processes; those that are gone do not matter."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
