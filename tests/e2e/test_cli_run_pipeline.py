"""`anabranch run`, `lag` and `why` as real commands, on the embedded broker, with a handler that files switch."""

from __future__ import annotations

import json
import os
import pty
import secrets
import select
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from anabranch import Broker

T = TypeVar("T")

DEADLINE_S = 40.0  # only a hang reaches it

APP = """
import asyncio
from pathlib import Path
from anabranch import Fatal, Pipeline, Poison, Retry

async def look(value: str) -> None:
    if value.startswith("stuck"):
        raise ConnectionError("503 from the other side")
    if value.startswith("slow"):
        Path("slow-began").touch()
        await asyncio.sleep(3600)
    if value.startswith("blunt"):
        Path("blunt-began").touch()
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
    if value.startswith("poison"):
        raise Poison("cannot pass")
    if value.startswith("fatal"):
        raise Fatal("stop it all")
    print("handled", value, flush=True)

GROUP = Path("group").read_text()
TOPIC = Path("topic").read_text()
billing = (
    Pipeline(GROUP).read(TOPIC, str).filter(lambda value: value != "nothing")
    .process(look, retry=Retry(attempts=None, initial_s=0.1, max_s=0.5))
)
"""


class Place:
    """A folder with app.py, and a broker: where a user types commands."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = f"group-{secrets.token_hex(4)}"
        (folder / "app.py").write_text(APP)
        (folder / "group").write_text(self.group)
        (folder / "topic").write_text(topic)
        others = {name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}
        self.environment = {
            **others,
            "ANABRANCH_KAFKA_BOOTSTRAP": bootstrap,
            "ANABRANCH_RUN_ENGINE": "async",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def call(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "anabranch", *words],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment,
            timeout=DEADLINE_S,
        )

    def send(self, *values: str) -> None:
        lines = "".join(f"{value.partition('-')[2]}:{value}\n" for value in values)
        done = self.call("produce", self.topic, "-K", ":", stdin=lines)
        assert done.returncode == 0, done.stderr

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "anabranch", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )
        watchdog = threading.Timer(DEADLINE_S, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()
            process.communicate()

    def sockets(self) -> list[Path]:
        return list((self.folder / ".anabranch" / self.group).glob("*.sock"))

    def why(self) -> str:
        done = self.call("why", self.group)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lag(self) -> dict[str, Any]:
        done = self.call("lag", self.group, "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@pytest.fixture
def place(tmp_path: Path, anabranch_broker: Broker, anabranch_topic: str) -> Place:
    return Place(tmp_path, anabranch_broker.bootstrap, anabranch_topic)


def test_until_end_handles_what_is_there_and_sums_up(place: Place) -> None:
    """Exit code 0; outputs of the handler on stdout, ours on stderr; the last line counts."""
    place.send("hello-ann", "hello-bob", "nothing", "bye-ann")
    done = place.call("run", "app:billing", "--until", "end")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["handled bye-ann", "handled hello-ann", "handled hello-bob"]
    assert done.stdout.index("hello-ann") < done.stdout.index("bye-ann")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{place.group}: done after ")
    assert "4 records settled (3 handled, 1 filtered, 0 dead), 0 retries" in last
    assert place.lag()["lag"] == 0
    assert "committed to the end" in place.why()
    misspelt = place.call("lag", place.group, "--topic", place.topic[:-1])
    assert misspelt.returncode == 2
    assert f"did you mean {place.topic}?" in misspelt.stderr


def test_one_signal_stops_cleanly(place: Place) -> None:
    """Nothing runs, so there is nothing to drain: exit code 0, and the socket is gone."""
    place.send("hello-ann")
    with place.started("run", "app:billing") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "handled hello-ann\n"
        eventually(place.sockets, "the status socket")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert f"{place.group}: stopped after" in errors
    assert not place.sockets()


def test_a_drain_that_does_not_end_in_time_has_its_own_exit_code(place: Place) -> None:
    """A call that does not end within --drain-s is cancelled, and the record is left to be repeated."""
    place.send("slow-ann")
    with place.started("run", "app:billing", "--drain-s", "0.2") as process:
        eventually((place.folder / "slow-began").exists, "the slow call has begun")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 5, errors
    assert "1 begun and left to be repeated" in errors.splitlines()[-1]


def test_a_second_signal_forces(place: Place) -> None:
    """A handler that swallows its cancellation cannot hold the process: 130."""
    place.send("blunt-ann")
    with place.started("run", "app:billing") as process:
        assert process.stderr is not None
        eventually((place.folder / "blunt-began").exists, "the call has begun")
        process.send_signal(signal.SIGINT)
        lines = iter(process.stderr.readline, "")
        assert any(line == "draining, Ctrl-C again to force\n" for line in lines)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130


def test_a_halt_names_record_cause_and_fix(place: Place) -> None:
    """Poison without dead letters halts: exit code 4, the user's frame, one sentence that says what to add."""
    place.send("poison-ann")
    done = place.call("run", "app:billing")
    assert done.returncode == 4
    assert 'raise Poison("cannot pass")' in done.stderr
    assert "site-packages" not in done.stderr
    assert "anabranch/engine" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("anabranch: error: ")
    for word in (place.topic, "cannot pass", ".dead_letters("):
        assert word in last


def test_an_unreachable_broker_is_exit_code_3_and_says_how_to_start_one(place: Place) -> None:
    """Nobody listens on port 1. The three wait side by side."""
    with ExitStack() as stack:
        commands = (["run", "app:billing", "--reach-s", "1"], ["lag", "x"], ["why", "x"])
        for process in [stack.enter_context(place.started(*words, "-b", "127.0.0.1:1")) for words in commands]:
            _, errors = process.communicate()
            assert process.returncode == 3, errors
            assert "`anabranch broker`" in errors.splitlines()[-1]


def test_a_group_that_nobody_knows_is_exit_code_2(place: Place) -> None:
    """A misspelt name is no empty answer."""
    for command in ("lag", "why"):
        done = place.call(command, "no-such-group")
        assert done.returncode == 2
        assert "no group 'no-such-group'" in done.stderr


def test_a_topic_that_is_not_there_is_exit_code_2_and_says_how_to_create_it(place: Place) -> None:
    """A slip of the pen must not create a topic and wait for ever."""
    (place.folder / "topic").write_text("no-such-topic")
    done = place.call("run", "app:billing")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "anabranch: error: no topic 'no-such-topic': create it with `anabranch topics create no-such-topic`"
    )


def test_why_and_lag_name_the_stuck_key_while_it_runs_and_its_offset_afterwards(place: Place) -> None:
    """The others go on; the process tells the blocker with its error, the commit tells its offset after a stop."""
    place.send("stuck-ann", *(f"hello{number}-ann" for number in range(3)))
    place.send(*(f"hello-k{number}" for number in range(40)))
    with place.started("run", "app:billing", "--drain-s", "0") as process:
        eventually(place.sockets, "the status socket")
        told = eventually(lambda: _if(place.why(), lambda text: "503" in text), "why tells it")
        assert "key 'ann'" in told
        assert "ConnectionError: 503 from the other side" in told
        lag = eventually(lambda: _if(place.lag(), _one_partition_is_behind), "only ann's partition is behind")
        assert lag["processes"] == 1
        stuck = next(each for each in lag["partitions"] if each["lag"])
        assert stuck["lag"] >= 4
        assert stuck["lag_s"] > 0
        process.send_signal(signal.SIGTERM)
        process.communicate()
    afterwards = place.why()
    assert "No process of group" in afterwards
    assert f"anabranch consume {place.topic} -p {stuck['partition']}" in afterwards
    assert place.lag()["processes"] == 0


def test_on_a_terminal_the_line_is_redrawn_in_place(place: Place) -> None:
    """What the handler prints stands on lines of its own above it."""
    place.send("hello-ann", "stuck-bob")
    screen = _on_a_terminal(place, lambda text: b"hello-ann" in text and b"1 key waiting" in text)
    assert b"\r\x1b[K" in screen
    assert b"handled hello-ann\r\n" in screen
    assert b"draining, Ctrl-C again to force" in screen


def _if(found: T, holds: Callable[[T], bool]) -> T | None:
    return found if holds(found) else None


def _one_partition_is_behind(lag: dict[str, Any]) -> bool:
    return sum(each["lag"] > 0 for each in lag["partitions"]) == 1


def _on_a_terminal(place: Place, enough: Callable[[bytes], bool]) -> bytes:
    """Run on a pseudo-terminal until enough is seen, then press Ctrl-C; return all that was written."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch", "run", "app:billing", "--drain-s", "1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=place.folder,
        env={**place.environment, "COLUMNS": "160"},
        start_new_session=True,
    )
    os.close(theirs)
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    screen, pressed = b"", False
    try:
        while True:
            select.select([ours], [], [])
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            screen += part
            if not pressed and enough(screen):
                process.send_signal(signal.SIGINT)
                pressed = True
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        os.close(ours)
    return screen
