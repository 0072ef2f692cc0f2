"""`anabranch broker` as a real process: ready, asked, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE_S = 30.0  # only a hang reaches it


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}


@contextmanager
def broker(tmp_path: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a broker until the block ends; give the process and the address that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch", "broker", "--listen", "127.0.0.1:0", "--data-dir", "data", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:"), process.communicate()[1]
        yield process, line.removeprefix("listening on ").strip()
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def tool(tmp_path: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anabranch", *words],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=DEADLINE_S,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_says_where_it_listens_and_stops_cleanly(tmp_path: Path, number: int) -> None:
    """Port 0 picks a port, which is printed when clients can connect; a signal ends it with exit code 0."""
    with broker(tmp_path) as (process, address):
        assert tool(tmp_path, "topics", "create", "orders", "-b", address).returncode == 0
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 0


def test_records_are_there_after_a_restart(tmp_path: Path) -> None:
    """The folder is the broker: what was acknowledged is read from the next process."""
    with broker(tmp_path) as (process, address):
        assert tool(tmp_path, "produce", "orders", "-b", address, stdin="a\nb\n").returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    with broker(tmp_path) as (_process, address):
        assert tool(tmp_path, "consume", "orders", "-e", "-b", address).stdout == "a\nb\n"


def test_a_folder_that_another_broker_uses_is_refused(tmp_path: Path) -> None:
    """Two writers would destroy the log: the second is told so, with exit code 2."""
    with broker(tmp_path):
        second = tool(tmp_path, "broker", "--listen", "127.0.0.1:0", "--data-dir", "data")
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr.startswith("anabranch: error: ")
    assert second.stderr.count("\n") == 1


def test_an_address_that_is_taken_is_refused(tmp_path: Path) -> None:
    """One line, exit code 2, no traceback."""
    with broker(tmp_path) as (_process, address):
        second = tool(tmp_path, "broker", "--listen", address, "--data-dir", "other")
    assert (second.returncode, second.stdout) == (2, "")
    assert address in second.stderr
    assert "Traceback" not in second.stderr


def test_topics_are_not_created_on_demand_when_that_is_off(tmp_path: Path) -> None:
    """--no-auto-create: writing to an unknown topic is refused, with the command that creates it."""
    with broker(tmp_path, "--no-auto-create") as (_process, address):
        done = tool(tmp_path, "produce", "orders", "-b", address, stdin="a\n")
    assert done.returncode == 2
    assert "anabranch topics create orders" in done.stderr


def test_log_lines_are_json_when_asked(tmp_path: Path) -> None:
    """Every line on stderr is an object with time, level, logger and message."""
    import json

    with broker(tmp_path, "--log-format", "json", "--log-level", "debug") as (process, _address):
        process.send_signal(signal.SIGTERM)
        _out, err = process.communicate(timeout=DEADLINE_S)
    lines = [json.loads(line) for line in err.splitlines()]
    assert lines
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
