"""Runs in processes of their own: ended by signals, with calls that hang, and killed."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runtime_child import STOP_HEARD
from runtime_topics import committed, log_ends, send

from anabranch import Pipeline

if TYPE_CHECKING:
    from anabranch import Broker

CHILD = Path(__file__).with_name("runtime_child.py")


@pytest.fixture
def group() -> str:
    return f"group-{secrets.token_hex(4)}"


class Child:
    """A run in a process of its own."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == word:
                return
        raise AssertionError(f"it never said {word}: {self.end()}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        try:
            _, errors = self._process.communicate(timeout=30)
        finally:
            self._process.kill()
        return self._process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_cleanly(
    anabranch_broker: Broker, anabranch_topic: str, group: str, number: signal.Signals
) -> None:
    """Exit code 0, and nothing on stderr."""
    send(anabranch_broker.bootstrap, anabranch_topic, [(b"a", b"quick")])
    child = Child(anabranch_broker.bootstrap, anabranch_topic, group, "--")
    child.wait_for("quick")
    child.signal(number)
    assert child.end() == (0, "")
    assert sum(committed(anabranch_broker.bootstrap, group).values()) == 1


@pytest.mark.parametrize("kind", ["swallow", "block", "thread"])
def test_a_second_signal_forces_whatever_hangs(
    anabranch_broker: Broker, anabranch_topic: str, group: str, kind: str
) -> None:
    """Exit code 130 within seconds: a coroutine that swallows, a call that holds the loop, a thread."""
    send(anabranch_broker.bootstrap, anabranch_topic, [(b"a", kind.encode())])
    child = Child(anabranch_broker.bootstrap, anabranch_topic, group, "thread" if kind == "thread" else "--")
    child.wait_for(kind)
    child.signal(signal.SIGTERM)
    child.wait_for(STOP_HEARD)
    child.signal(signal.SIGTERM)
    code, errors = child.end()
    assert code == 130
    assert "Traceback" not in errors
    assert "pending" not in errors


@pytest.mark.parametrize(("kind", "engine"), [("swallow", "inline"), ("swallow-all", "async")])
def test_a_process_ends_quietly_with_calls_left_behind(
    anabranch_broker: Broker, anabranch_topic: str, group: str, kind: str, engine: str
) -> None:
    """A coroutine that swallows whatever is thrown into it is neither complained about nor waited for at exit."""
    send(anabranch_broker.bootstrap, anabranch_topic, [(b"a", kind.encode())])
    child = Child(anabranch_broker.bootstrap, anabranch_topic, group, engine, "0.1")
    child.wait_for(kind)
    child.signal(signal.SIGTERM)
    code, errors = child.end()
    assert code == 5
    assert errors.startswith("calls that could not be ended are left behind")
    assert errors.count("\n") == 1


def test_a_process_that_is_killed_leaves_its_work_to_the_next(
    anabranch_broker: Broker, anabranch_topic: str, group: str, tmp_path: Path
) -> None:
    """kill -9 in the middle of a call: the next run repeats that record and what follows, and skips nothing."""
    bootstrap = anabranch_broker.bootstrap
    send(bootstrap, anabranch_topic, [(b"a", b"quick"), (b"a", b"swallow"), (b"a", b"quick")])
    child = Child(bootstrap, anabranch_topic, group, "--")
    child.wait_for("swallow")
    child.signal(signal.SIGKILL)
    assert child.end()[0] == -signal.SIGKILL
    seen: list[bytes] = []

    async def handle(value: bytes) -> None:
        seen.append(value)

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(handle)
    assert pipeline.start("async", bootstrap=bootstrap, until="end", state_dir=tmp_path).join(60)
    assert seen[-2:] == [b"swallow", b"quick"]
    assert committed(bootstrap, group) == log_ends(bootstrap, anabranch_topic)
