"""Run a pipeline on Spark: `start` it, `run` it until it ends, or have it `running` inside an `async with`.

`SparkRun` is the handle, with the interface of `runtime.run.Run`: every method may be called from any thread, also from
a signal handler. The driver's story has a thread and an event loop of its own; Spark's session opens and works on other
threads.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import InternalError
from anabranch.runtime.result import FORCED, ExitCode, Result
from anabranch.runtime.run import ANSWER_S, LOGGER, attend
from anabranch.runtime.statistics import unopened
from anabranch.spark.driver import Driver
from anabranch.spark.settings import spark_settings
from anabranch.spark.statistics import of_nobody

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from pyspark.sql import SparkSession

    from anabranch.core.history import Recorder
    from anabranch.pipeline.plan import Plan
    from anabranch.spark.settings import SparkSettings

FORCED_S: Final = 5.0
"""How long a forced end may take before it is left to itself."""
_WAIT_S: Final = 0.1
_STILL_RUNNING: Final = Result(ExitCode.INTERNAL, "still running")


def start(
    plan: Plan,
    engine: str = "spark",
    *,
    pipeline: Any,
    master: str | None = None,
    members: int | None = None,
    conf: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    recorder: Callable[[str], Recorder] | None = None,
    **options: Any,
) -> SparkRun:
    """Start a run and return at once. What cannot be right is refused here; all else is told by `join`.

    `master`, `members` and `conf` are Spark's; without `members` there are as many as partitions and cores. `spark` is
    a session to use; else the active one, else one is made. `recorder` makes the recorder of a member from its name, in
    the member. All other options are those of `runtime.run.start`.
    """
    del engine  # it is this one
    settings = spark_settings(
        plan, master=master, members=members, conf=conf, spark=spark, recorder=recorder, options=options
    )
    return SparkRun(plan, pipeline, settings)


def run(
    plan: Plan,
    engine: str = "spark",
    *,
    on_status: Callable[[dict[str, Any]], None] | None = None,
    status_s: float = 1.0,
    **options: Any,
) -> int:
    """Run until done, stopped by a signal, or halted; return the exit code. Blocks, as `runtime.run.run` does."""
    return attend(start(plan, engine, **options), on_status, status_s)


@asynccontextmanager
async def running(plan: Plan, engine: str = "spark", **options: Any) -> AsyncIterator[SparkRun]:
    """Run while the block lasts, then stop cleanly; raise what ended the run, if that was an error."""
    live = start(plan, engine, **options)
    try:
        yield live
    finally:
        live.stop()
        await asyncio.to_thread(live.join)


class SparkRun:
    """A pipeline that runs on Spark, seen from outside."""

    def __init__(self, plan: Plan, pipeline: Any, settings: SparkSettings) -> None:
        self._plan = plan
        self._pipeline = pipeline
        self._settings = settings
        self._driver: Driver | None = None
        self._result: Result | None = None
        self._last = of_nobody(unopened(plan, settings.run), plan.name)
        self._ended = threading.Event()
        self._stop_asked: tuple[float | None] | None = None
        self._forced_at: float | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name=f"anabranch-{plan.name}", daemon=True)
        self._thread.start()

    @property
    def result(self) -> Result:
        """How the run ended; before that, that it is still running."""
        return self._result or _STILL_RUNNING

    def statistics(self) -> dict[str, Any]:
        """Answer plain values, as JSON can hold them, of all members together. They are half a second old."""
        driver = self._driver
        if driver is None or self._ended.is_set():
            return self._last
        if threading.get_ident() == self._thread.ident:
            return driver.statistics()
        answer: Future[dict[str, Any]] = Future()

        def fill() -> None:
            try:
                answer.set_result(driver.statistics())
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
        """Stop: members begin no new record, let begun ones end within `drain_s`, commit, leave. Never blocks."""
        self._stop_asked = (drain_s,)
        if self._driver is not None:
            self._tell(self._driver.stop, drain_s)

    def terminate(self) -> None:
        """Force the end: nothing is waited for or committed. Never blocks."""
        self._forced_at = time.monotonic()
        if self._driver is not None:
            self._tell(self._driver.terminate)

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
        return f"<SparkRun {self._plan.name!r}: {self.result.reason}>"

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
        """Look whether a forced end takes too long: a JVM that does not answer cannot be waited for."""
        if self._forced_at is None or time.monotonic() - self._forced_at < FORCED_S:
            return False
        self._result = self._result or FORCED
        return True

    # ── the run's own thread ──

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            result = self._loop.run_until_complete(self._live())
        except BaseException as error:  # told by `join`
            LOGGER.exception("the run's thread failed")
            failure = InternalError(f"{type(error).__name__}: {error}; this is a fault in anabranch: please report it")
            failure.__cause__ = error
            result = Result.of_error(failure)
        if self._result is None:
            self._result = result
        self._loop.close()
        self._ended.set()

    async def _live(self) -> Result:
        driver = Driver(self._plan, self._pipeline, self._settings)
        self._driver = driver
        if self._forced_at is not None:
            return FORCED
        if self._stop_asked is not None:
            driver.stop(*self._stop_asked)
        result = await driver.run()
        self._last = driver.statistics()
        return result
