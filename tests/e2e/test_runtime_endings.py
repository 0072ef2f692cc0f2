"""How a run ends: stopped, forced, halted, lost, out of order."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from restartable_broker import RestartableBroker
from runtime_topics import committed, log_ends, numbered, send
from waiting import eventually

from anabranch import Fatal, Pipeline, Retry
from anabranch.core.errors import BrokerUnreachable, HandlerError, InternalError, PeerError, UsageError
from anabranch.core.history import NullRecorder
from anabranch.runtime.run import run as run_pipeline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from anabranch import Broker
    from anabranch.core.history import Event


@pytest.fixture
def group() -> str:
    return f"group-{secrets.token_hex(4)}"


@pytest.fixture
def options(anabranch_broker: Broker, tmp_path: Path) -> dict[str, Any]:
    return {
        "engine": "async",
        "bootstrap": anabranch_broker.bootstrap,
        "state_dir": tmp_path / "state",
        "session_timeout_s": 6,
    }


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Let go of whatever a test has made hang."""
    event = threading.Event()
    yield event
    event.set()


def test_a_stop_lets_begun_calls_end_and_the_next_run_goes_on_behind_them(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """Stopped in the middle: what ran is settled and committed, the rest is done by the next run, nothing twice."""
    bootstrap = options["bootstrap"]
    send(bootstrap, anabranch_topic, numbered(10, 50))
    seen: list[tuple[bytes, bytes]] = []

    async def handle(value: bytes, ctx: Any) -> None:
        await asyncio.sleep(0.005)
        seen.append((ctx.key, value))

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(handle, concurrency=4)
    first = pipeline.start(**options)
    eventually(lambda: len(seen) > 20, "some records are handled")
    first.stop()
    assert first.join(30)
    assert first.result.exit_code == 0
    assert first.result.reason == "stopped"
    assert len(seen) < 500
    second = pipeline.start(until="end", **options)
    assert second.join(60)
    assert len(seen) == len(set(seen)) == 500
    assert second.statistics()["handled"] + first.statistics()["handled"] == 500
    assert committed(bootstrap, group) == log_ends(bootstrap, anabranch_topic)


def test_a_call_that_swallows_its_cancellation_cannot_hold_the_stop(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """Exit code 5 soon after the drain; what is settled is committed, the stuck record is not."""
    send(options["bootstrap"], anabranch_topic, [(b"a", b"1"), (b"a", b"stuck"), (b"a", b"3")])
    begun = threading.Event()

    async def handle(value: bytes) -> None:
        while value == b"stuck":
            begun.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    run = Pipeline(group).read(anabranch_topic, bytes).process(handle).start(drain_s=0.2, **options)
    assert begun.wait(30)
    run.stop()
    assert run.join(30)
    assert run.result.exit_code == 5
    assert sum(committed(options["bootstrap"], group).values()) == 1


def test_a_thread_that_cannot_be_stopped_cannot_hold_the_stop(
    options: dict[str, Any], anabranch_topic: str, group: str, release: threading.Event
) -> None:
    """The same for a plain handler: its thread is left behind."""
    send(options["bootstrap"], anabranch_topic, [(b"a", b"stuck")])
    begun = threading.Event()

    def handle(_value: bytes) -> None:
        begun.set()
        release.wait(60)

    run = Pipeline(group).read(anabranch_topic, bytes).process(handle).start(**options)
    assert begun.wait(30)
    run.stop(drain_s=0.1)
    assert run.join(30)
    assert run.result.exit_code == 5


def test_a_handler_that_holds_the_loop_itself_cannot_hold_the_stop(
    options: dict[str, Any], anabranch_topic: str, group: str, release: threading.Event
) -> None:
    """An async handler that blocks: nobody can interrupt it, but `join` gives up on it, and so can the process."""
    send(options["bootstrap"], anabranch_topic, [(b"a", b"stuck")])
    begun = threading.Event()

    async def handle(_value: bytes) -> None:
        begun.set()
        release.wait(60)

    run = Pipeline(group).read(anabranch_topic, bytes).process(handle).start(**options)
    assert begun.wait(30)
    assert run.statistics()["stale"]
    run.stop(drain_s=0.1)
    assert run.join(30)
    assert run.result.exit_code == 5


def test_terminate_ends_a_run_at_once_and_commits_nothing(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """Exit code 130, whatever runs."""
    send(options["bootstrap"], anabranch_topic, [(b"a", b"1")])
    begun = threading.Event()

    async def handle(_value: bytes) -> None:
        begun.set()
        await asyncio.sleep(3600)

    run = Pipeline(group).read(anabranch_topic, bytes).process(handle).start(**options)
    assert begun.wait(30)
    run.stop()
    assert not run.join(0.1)
    run.terminate()
    assert run.join(10)
    assert run.result.exit_code == 130
    assert sum(committed(options["bootstrap"], group).values()) == 0


def test_no_broker_is_exit_code_3_with_a_sentence(tmp_path: Path, group: str) -> None:
    """BrokerUnreachable names the address and the command that starts one."""

    async def handle(_value: bytes) -> None: ...

    pipeline = Pipeline(group).read("t", bytes).process(handle)
    run = pipeline.start("async", bootstrap="127.0.0.1:1", state_dir=tmp_path, reach_s=0.2)
    with pytest.raises(BrokerUnreachable, match="anabranch broker"):
        run.join(30)
    assert run.result.exit_code == 3


def test_a_run_that_is_there_before_its_broker_waits_for_it(
    tmp_path: Path, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who starts both together need not care which is the first; meanwhile it says what it waits for."""
    seen: list[bytes] = []

    async def handle(value: bytes) -> None:
        seen.append(value)

    with RestartableBroker(tmp_path / "broker", auto_create=True) as broker:
        send(broker.bootstrap, "t", [(b"a", b"1")])
        broker.end("clean")
        pipeline = Pipeline(group).read("t", bytes).process(handle)
        run = pipeline.start("async", bootstrap=broker.bootstrap, state_dir=tmp_path / "state", until="end")
        eventually(lambda: f"waiting for the broker at {broker.bootstrap}" in caplog.text, "it says that it waits")
        broker.start()
        assert run.join(30)
    assert seen == [b"1"]
    assert run.result.exit_code == 0


def test_a_run_that_waits_for_its_broker_can_be_stopped(tmp_path: Path, group: str) -> None:
    """At once, and cleanly: nothing has begun."""

    async def handle(_value: bytes) -> None: ...

    pipeline = Pipeline(group).read("t", bytes).process(handle)
    run = pipeline.start("async", bootstrap="127.0.0.1:1", state_dir=tmp_path, reach_s=3600)
    run.stop()
    assert run.join(30)
    assert (run.result.exit_code, run.result.reason) == (0, "stopped")


def test_a_topic_that_does_not_exist_is_exit_code_2(options: dict[str, Any], group: str) -> None:
    """A UsageError that says how to make it."""

    async def handle(_value: bytes) -> None: ...

    run = Pipeline(group).read("nowhere", bytes).process(handle).start(**options)
    with pytest.raises(UsageError, match="anabranch topics create nowhere"):
        run.join(30)
    assert run.result.exit_code == 2


def test_a_lifespan_that_does_not_open_ends_the_run_before_the_group_is_joined(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """The error is the user's, and is the cause of ours."""

    @asynccontextmanager
    async def open_clients() -> AsyncIterator[None]:
        raise ValueError("no password")
        yield

    async def handle(_value: bytes) -> None: ...

    run = Pipeline(group).read(anabranch_topic, bytes).process(handle).lifespan(open_clients).start(**options)
    with pytest.raises(HandlerError, match="no password") as caught:
        run.join(30)
    assert isinstance(caught.value.__cause__, ValueError)
    assert not committed(options["bootstrap"], group)


def test_a_lifespan_that_does_not_close_is_told_after_everything_else_was_done(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """What is settled stays committed."""
    send(options["bootstrap"], anabranch_topic, numbered(4, 5))

    @asynccontextmanager
    async def open_clients() -> AsyncIterator[None]:
        yield
        raise ValueError("already closed")

    async def handle(_value: bytes) -> None: ...

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(handle).lifespan(open_clients)
    with pytest.raises(HandlerError, match="already closed"):
        pipeline.start(until="end", **options).join(30)
    assert committed(options["bootstrap"], group) == log_ends(options["bootstrap"], anabranch_topic)


def test_system_exit_in_a_task_of_the_users_own_ends_the_run_and_not_the_process(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """It goes through the loop itself; the run is shut down in order all the same."""
    send(options["bootstrap"], anabranch_topic, [(b"a", b"1")])
    tasks: list[Any] = []

    async def give_up() -> None:
        raise SystemExit(7)

    async def handle(_value: bytes) -> None:
        tasks.append(asyncio.get_running_loop().create_task(give_up()))
        await asyncio.sleep(0.2)

    run = Pipeline(group).read(anabranch_topic, bytes).process(handle).start(**options)
    with pytest.raises(HandlerError, match="SystemExit"):
        run.join(30)
    assert run.result.exit_code == 4
    assert isinstance(tasks[0].exception(), SystemExit)


class BrokenRecorder(NullRecorder):
    """A recorder whose disk is full."""

    enabled = True

    def record(self, events: Sequence[Event]) -> None:
        raise OSError("no space left on device")


def test_a_fault_of_ours_ends_the_run_and_never_hangs(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """InternalError, exit code 1, with the cause."""
    send(options["bootstrap"], anabranch_topic, [(b"a", b"1")])

    async def handle(_value: bytes) -> None: ...

    run = Pipeline(group).read(anabranch_topic, bytes).process(handle).start(recorder=BrokenRecorder(), **options)
    with pytest.raises(InternalError, match="no space left") as caught:
        run.join(30)
    assert isinstance(caught.value.__cause__, OSError)
    assert run.result.exit_code == 1


def test_a_member_that_another_one_replaces_ends_as_lost(
    options: dict[str, Any], anabranch_topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two runs with one group.instance.id: the older one is fenced, commits nothing more, and says so.

    What is lost is told in words that hold whoever has it next: a broker that restarts loses it for us, too.
    """
    send(options["bootstrap"], anabranch_topic, numbered(4, 5))
    seen: list[bytes] = []

    async def handle(value: bytes) -> None:
        seen.append(value)

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(handle)
    static = {**options, "kafka": {"group.instance.id": "one", "heartbeat.interval.ms": 300}}
    old = pipeline.start(member="old", **static)
    eventually(lambda: len(seen) == 20, "the first one works")
    new = pipeline.start(member="new", **static)
    with pytest.raises(PeerError):
        old.join(30)
    assert old.result.reason == "lost"
    assert "what was not committed is repeated by whoever has them next" in caplog.text
    send(options["bootstrap"], anabranch_topic, [(b"z", b"last")])
    eventually(lambda: b"last" in seen, "the second one goes on")
    new.stop()
    assert new.join(30)


def test_a_member_that_may_not_start_begins_nothing_until_it_may(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """Its records wait, nothing fails, and they are handled when it may again."""
    send(options["bootstrap"], anabranch_topic, numbered(4, 5))
    seen: list[bytes] = []
    asked = [0]
    allowed = threading.Event()

    def may_start() -> bool:
        asked[0] += 1
        return allowed.is_set()

    async def handle(value: bytes, ctx: Any) -> None:
        assert ctx.attempt == 1
        seen.append(value)

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(handle)
    run = pipeline.start(until="end", may_start=may_start, **options)
    eventually(lambda: asked[0] > 20, "it was asked")
    assert not seen
    allowed.set()
    assert run.join(30)
    assert len(seen) == 20


def test_run_returns_the_exit_code_and_tells_how_it_is_doing(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """From a thread that takes no signals, too."""
    send(options["bootstrap"], anabranch_topic, numbered(4, 5))
    told: list[dict[str, Any]] = []

    async def handle(_value: bytes) -> None:
        await asyncio.sleep(0.05)

    plan = Pipeline(group).read(anabranch_topic, bytes).process(handle).plan()
    codes: list[int] = []

    def work() -> None:
        codes.append(run_pipeline(plan, until="end", on_status=told.append, status_s=0.02, **options))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert codes == [0]
    assert {"starting", "running"} & {each["state"] for each in told}


def test_a_halt_is_logged_with_the_traceback_of_the_handler(
    options: dict[str, Any], anabranch_topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`run` only returns a code: what the handler raised, and where, is in the log."""
    send(options["bootstrap"], anabranch_topic, [(b"a", b"1")])

    async def handle(_value: bytes) -> None:
        raise Fatal("the disk is full")

    assert Pipeline(group).read(anabranch_topic, bytes).process(handle).run(**options) == 4
    (logged,) = [each for each in caplog.records if each.name == "anabranch.run" and each.levelname == "ERROR"]
    assert "the disk is full" in logged.message
    assert 'raise Fatal("the disk is full")' in logging.Formatter().format(logged)


def test_a_stop_that_gives_up_a_retry_does_not_speak_of_calls(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """Nothing runs, a record only waits for its next attempt: exit code 5, in words that hold for both."""
    send(options["bootstrap"], anabranch_topic, [(b"a", b"1")])

    async def handle(_value: bytes) -> None:
        raise ConnectionError("down")

    retry = Retry(attempts=None, initial_s=3600, max_s=3600)
    run = Pipeline(group).read(anabranch_topic, bytes).process(handle, retry=retry).start(**options)
    eventually(lambda: run.statistics()["retries"], "it waits")
    run.stop(drain_s=0.1)
    assert run.join(30)
    assert (run.result.exit_code, run.result.reason) == (5, "stopped before all that had begun was settled")
