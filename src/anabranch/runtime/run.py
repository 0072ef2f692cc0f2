"""Run a pipeline in this process: `start` it, `run` it until it ends, or have it `running` inside an `async with`.

A run has a thread and an event loop of its own, so it works the same from a script, a notebook or under a running loop,
and a caller that blocks does not hold it up. `Run` is the handle: every method may be called from any thread, also from
a handler or a signal handler, so none of them takes a lock that the other side could hold.

The thread is a daemon: whoever starts a run joins it. A handler that never gives the loop back cannot be stopped by
anyone; `join` notices that the loop does not answer and gives up on it, so that a process can always end.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from anabranch.core.errors import AnabranchError, Halted, HandlerError, InternalError
from anabranch.runtime.garbage import rare_collections
from anabranch.runtime.leftovers import end_leftovers
from anabranch.runtime.member import CANCEL_S, FORCED_S, LEAVE_S, Member
from anabranch.runtime.result import DRAIN_INCOMPLETE, FORCED, ExitCode, Result
from anabranch.runtime.settings import Given, RunSettings, checked
from anabranch.runtime.signals import Stoppable, stopping
from anabranch.runtime.statistics import unopened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from datetime import datetime
    from os import PathLike

    from anabranch.core.history import Recorder
    from anabranch.pipeline.plan import Plan

LOGGER: Final = logging.getLogger("anabranch.run")
ANSWER_S: Final = 1.0
"""How long `statistics` waits for a loop that is busy before it gives the last answer again."""
_WAIT_S: Final = 0.1
_STORY_S: Final = 10.0 + 3 * LEAVE_S + 2 * CANCEL_S
"""What the end may take beyond the drain: the last commit, leaving, flushing, the lifespan."""
_STILL_RUNNING: Final = Result(ExitCode.INTERNAL, "still running")


def start(
    plan: Plan,
    engine: str = "async",
    *,
    bootstrap: str = "127.0.0.1:9092",
    kafka: Mapping[str, Any] | None = None,
    until: str | datetime | None = None,
    state_dir: str | PathLike[str] | None = None,
    recorder: Recorder | None = None,
    member: str | None = None,
    may_start: Callable[[], bool] | None = None,
    drain_s: float = 30.0,
    grace_s: float = 5.0,
    session_timeout_s: float = 10.0,
    reach_s: float = 10.0,
    on_lost_to_retention: str = "go on",
    on_beyond_end: str = "halt",
    serves_status: bool = True,
    leave_static: bool = False,
    **unknown: Any,
) -> Run:
    """Start a run and return at once. What cannot be right is refused here; all else is told by `join`.

    `kafka` passes to librdkafka; `until` is `"end"` or a time, and ends the run when the group has settled all records
    below; `may_start` is looked at before each call begins, from any thread, and must not block. `reach_s` is how long
    to wait for a broker that does not answer yet; `on_lost_to_retention` ("go on", "halt") and `on_beyond_end` ("halt",
    "log_end", "log_start") say what to do when a log no longer has a position. Without `serves_status` there is no
    status socket and nothing is written to `state_dir`: a Spark member has its driver for that. With `leave_static` a
    static member (`group.instance.id`) frees its place when it ends; else the group keeps it for the session time-out.
    """
    given = Given(
        engine=engine,
        bootstrap=bootstrap,
        kafka=kafka,
        until=until,
        state_dir=state_dir,
        recorder=recorder,
        member=member,
        may_start=may_start,
        drain_s=drain_s,
        grace_s=grace_s,
        session_timeout_s=session_timeout_s,
        reach_s=reach_s,
        on_lost_to_retention=on_lost_to_retention,
        on_beyond_end=on_beyond_end,
        serves_status=serves_status,
        leave_static=leave_static,
        unknown=unknown,
    )
    return Run(plan, checked(plan, given))


def run(
    plan: Plan,
    engine: str = "async",
    *,
    on_status: Callable[[dict[str, Any]], None] | None = None,
    status_s: float = 1.0,
    **options: Any,
) -> int:
    """Run until done, stopped by a signal, or halted; return the exit code. Blocks.

    SIGINT and SIGTERM stop the run, a second one forces (when called on the main thread). An error that ends it is
    logged. `on_status` is called here with the statistics, every `status_s`.
    """
    return attend(start(plan, engine, **options), on_status, status_s)


class Attended(Stoppable, Protocol):
    """A run, on whatever engine."""

    @property
    def result(self) -> Result:
        """How it ended."""

    def statistics(self) -> dict[str, Any]:
        """How it is."""

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; raise what ended it."""


def attend(live: Attended, on_status: Callable[[dict[str, Any]], None] | None, status_s: float) -> int:
    """Wait for the end of a run as `run` does: signals stop it, its error is logged, its status is shown."""
    with stopping(live):
        try:
            while not live.join(status_s if on_status is not None else None):
                if on_status is not None:
                    on_status(live.statistics())
        except AnabranchError as error:
            # The sentence is for the user, with the traceback of his own code; a fault of ours has logged its own.
            theirs = error.__cause__ if isinstance(error, Halted | HandlerError) else None
            LOGGER.error("%s", error, exc_info=theirs)  # noqa: TRY400 - not ours, which says nothing
    return live.result.exit_code


@asynccontextmanager
async def running(plan: Plan, engine: str = "async", **options: Any) -> AsyncIterator[Run]:
    """Run while the block lasts, then stop cleanly; raise what ended the run, if that was an error."""
    live = start(plan, engine, **options)
    try:
        yield live
    finally:
        live.stop()
        await asyncio.to_thread(live.join)


class Run:
    """A pipeline that runs, seen from outside."""

    def __init__(self, plan: Plan, settings: RunSettings) -> None:
        self._plan = plan
        self._settings = settings
        self._member: Member | None = None
        self._result: Result | None = None
        self._last = unopened(plan, settings)
        self._ended = threading.Event()
        self._stop_asked: tuple[float | None] | None = None
        self._stop_at: float | None = None
        self._forced_at: float | None = None
        self._is_left_behind = False
        self._loop = _new_event_loop()
        self._thread = threading.Thread(target=self._main, name=f"anabranch-{plan.name}", daemon=True)
        self._thread.start()

    @property
    def result(self) -> Result:
        """How the run ended; before that, that it is still running."""
        return self._result or _STILL_RUNNING

    def statistics(self) -> dict[str, Any]:
        """Answer plain values, as JSON can hold them. From a loop that does not answer: the last ones, as `stale`."""
        member = self._member
        if member is None or self._ended.is_set():
            return self._last
        if threading.get_ident() == self._thread.ident:
            return member.statistics()
        answer: Future[dict[str, Any]] = Future()

        def fill() -> None:
            try:
                answer.set_result(member.statistics())
            except Exception as error:  # told to who asked
                answer.set_exception(error)

        if not self._tell(fill):
            return self._last
        try:
            self._last = answer.result(ANSWER_S)
        except TimeoutError:
            return {**self._last, "stale": True}
        return self._last

    def stop(self, drain_s: float | None = None) -> None:
        """Stop: begin no new record, let begun ones end within `drain_s`, commit, leave. Never blocks."""
        self._stop_asked = (drain_s,)
        self._stop_at = time.monotonic()
        if self._member is not None:
            self._tell(self._member.stop, drain_s)

    def terminate(self) -> None:
        """Force the end: nothing is waited for or committed. Never blocks."""
        self._forced_at = time.monotonic()
        if self._member is not None:
            self._tell(self._member.terminate)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; answer whether it has come. Raises what ended the run, if that was an error."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._ended.is_set() and not self._given_up():
            left_s = _WAIT_S if until is None else until - time.monotonic()
            if left_s <= 0:
                return False
            self._ended.wait(min(left_s, _WAIT_S))
        if self.result.error is not None:
            raise self.result.error
        return True

    def __repr__(self) -> str:
        return f"<Run {self._plan.name!r} on {self._settings.engine}: {self.result.reason}>"

    def _tell(self, function: Callable[..., None], *arguments: Any) -> bool:
        """Have the loop call a function; answer False when it has ended."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            return False
        return True

    def _given_up(self) -> bool:
        """Look whether the loop was asked to end and does not answer: a handler holds it and cannot be stopped."""
        if self._is_left_behind:
            return True
        result = self._overdue()
        if result is None or self._result is not None:  # it has ended after all, and says so in a moment
            return False
        LOGGER.warning("a handler holds the event loop and never gives it back: it is left behind")
        self._result = result
        self._is_left_behind = True
        return True

    def _overdue(self) -> Result | None:
        """Return how the run ends when it should have ended long ago."""
        now = time.monotonic()
        if self._forced_at is not None:
            heard = self._member is not None and self._member.forced
            return FORCED if now - self._forced_at > (8 * FORCED_S if heard else 2 * FORCED_S) else None
        if self._stop_at is not None and self._stop_asked is not None:
            drain_s = self._settings.drain_s if self._stop_asked[0] is None else self._stop_asked[0]
            patience_s = _STORY_S if self._heard_stop() else 2 * CANCEL_S
            return DRAIN_INCOMPLETE if now - self._stop_at > drain_s + patience_s else None
        return None

    def _heard_stop(self) -> bool:
        return self._member is not None and self._member.state != "running"

    # ── the run's own thread ──

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        story = self._loop.create_task(self._live())
        try:
            with rare_collections():
                while not story.done():
                    self._turn(story)
            result = story.result()
        except BaseException as error:  # told by `join`
            LOGGER.exception("the run's thread failed")
            failure = InternalError(f"{type(error).__name__}: {error}; this is a fault in anabranch: please report it")
            failure.__cause__ = error
            result = Result.of_error(failure)
        if self._result is None:
            self._result = result
        self._loop.close()
        self._ended.set()

    def _turn(self, story: asyncio.Task[Result]) -> None:
        """Let the loop run until the story has ended, or something that is raised through the loop interrupts it."""
        try:
            self._loop.run_until_complete(story)
        except (SystemExit, KeyboardInterrupt) as error:
            if self._member is None or story.done():
                raise
            self._member.crash(error)

    async def _live(self) -> Result:
        member = Member(self._plan, self._settings)
        self._member = member
        if self._forced_at is not None:
            return FORCED
        if self._stop_asked is not None:
            member.stop(*self._stop_asked)
        result = await member.run()
        self._last = member.statistics()
        await end_leftovers(FORCED_S)
        return result


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # it is not there on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
