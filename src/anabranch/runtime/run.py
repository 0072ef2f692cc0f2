"""Run a pipeline in this process: `start` it, `run` it until it ends, or have it `running` inside an `async with`.

A run has a thread and an event loop of its own, so it works the same from a script, a notebook or under a running loop,
and a caller that blocks does not hold it up. `Run` is its handle: see `handle`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import AnabranchError, Halted, HandlerError
from anabranch.runtime.garbage import rare_collections
from anabranch.runtime.handle import LOGGER, Handle, lasting
from anabranch.runtime.leftovers import end_leftovers
from anabranch.runtime.member import CANCEL_S, FORCED_S, LAST_COMMIT_S, LEAVE_S, Member
from anabranch.runtime.result import DRAIN_INCOMPLETE, FORCED, Result
from anabranch.runtime.settings import Given, RunSettings, checked
from anabranch.runtime.signals import stopping
from anabranch.runtime.statistics import unopened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from datetime import datetime
    from os import PathLike

    from anabranch.core.history import Recorder
    from anabranch.pipeline.plan import Plan

_STORY_S: Final = LAST_COMMIT_S + 3 * LEAVE_S + 2 * CANCEL_S
"""What the end may take beyond the drain: the last commit, leaving, flushing, the lifespan."""


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
    static member (`group.instance.id`) frees its place when it is stopped or done; else, and after an error, the group
    keeps it for the session time-out.
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


def attend(live: Handle[Any], on_status: Callable[[dict[str, Any]], None] | None, status_s: float) -> int:
    """Wait for the end of a run as `run` does: signals stop it, its error is logged, its status is shown."""
    with stopping(live):
        try:
            while not live.join(status_s if on_status is not None else None):
                if on_status is not None:
                    on_status(live.statistics())
        except AnabranchError as error:
            # The sentence is for the user, with the traceback of his own code; a fault of ours has logged its own.
            theirs = error.__cause__ if isinstance(error, Halted | HandlerError) else None
            LOGGER.error("%s", error, exc_info=theirs)
    return live.result.exit_code


@asynccontextmanager
async def running(plan: Plan, engine: str = "async", **options: Any) -> AsyncIterator[Run]:
    """Run while the block lasts, then stop cleanly; raise what ended the run, if that was an error."""
    async with lasting(start(plan, engine, **options)) as live:
        yield live


class Run(Handle[Member]):
    """A pipeline that runs in this process, seen from outside."""

    def __init__(self, plan: Plan, settings: RunSettings) -> None:
        self._plan = plan
        self._settings = settings
        super().__init__(plan.name, unopened(plan, settings), _new_event_loop())

    def __repr__(self) -> str:
        return f"<Run {self._plan.name!r} on {self._settings.engine}: {self.result.reason}>"

    def _overdue(self) -> tuple[Result, str] | None:
        """Look for a handler that holds the loop and cannot be stopped."""
        now, sentence = time.monotonic(), "a handler holds the event loop and never gives it back: it is left behind"
        if self._forced_at is not None:
            heard = self._story is not None and self._story.forced
            return (FORCED, sentence) if now - self._forced_at > (8 * FORCED_S if heard else 2 * FORCED_S) else None
        if self._stop_at is not None and self._stop_asked is not None:
            drain_s = self._settings.drain_s if self._stop_asked[0] is None else self._stop_asked[0]
            patience_s = _STORY_S if self._heard_stop() else 2 * CANCEL_S
            return (DRAIN_INCOMPLETE, sentence) if now - self._stop_at > drain_s + patience_s else None
        return None

    def _heard_stop(self) -> bool:
        return self._story is not None and self._story.state != "running"

    # ── the run's own thread ──

    def _begin(self) -> Member:
        return Member(self._plan, self._settings)

    def _told(self, telling: asyncio.Task[Result]) -> Result:
        """Let the loop run on when something that is raised through it interrupts it."""
        with rare_collections():
            while not telling.done():
                try:
                    self._loop.run_until_complete(telling)
                except (SystemExit, KeyboardInterrupt) as error:
                    if self._story is None or telling.done():
                        raise
                    self._story.crash(error)
        return telling.result()

    async def _live(self) -> Result:
        result = await super()._live()
        await end_leftovers(FORCED_S)
        return result


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # it is not there on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
