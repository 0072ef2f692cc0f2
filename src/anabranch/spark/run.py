"""Run a pipeline on Spark: `start` it, `run` it until it ends, or have it `running` inside an `async with`.

`SparkRun` is the handle, as `runtime.run.Run` is: the driver's story has a thread and an event loop of its own. Spark's
session opens and works on other threads.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from anabranch.runtime.handle import Handle, lasting
from anabranch.runtime.result import FORCED
from anabranch.runtime.run import attend
from anabranch.runtime.statistics import unopened
from anabranch.spark.driver import Driver
from anabranch.spark.settings import spark_settings
from anabranch.spark.statistics import of_nobody

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from pyspark.sql import SparkSession

    from anabranch.core.history import Recorder
    from anabranch.pipeline.plan import Plan
    from anabranch.runtime.result import Result
    from anabranch.spark.settings import SparkSettings

FORCED_S: Final = 5.0
"""How long a forced end may take before it is left to itself."""


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
    async with lasting(start(plan, engine, **options)) as live:
        yield live


class SparkRun(Handle[Driver]):
    """A pipeline that runs on Spark, seen from outside. Its statistics, of all members, are half a second old."""

    def __init__(self, plan: Plan, pipeline: Any, settings: SparkSettings) -> None:
        self._plan = plan
        self._pipeline = pipeline
        self._settings = settings
        super().__init__(plan.name, of_nobody(unopened(plan, settings.run), plan.name), asyncio.new_event_loop())

    def __repr__(self) -> str:
        return f"<SparkRun {self._plan.name!r}: {self.result.reason}>"

    def _overdue(self) -> tuple[Result, str] | None:
        """Look for a JVM that does not answer. A stop has limits of its own: see `supervisor`."""
        if self._forced_at is None or time.monotonic() - self._forced_at < FORCED_S:
            return None
        return FORCED, "Spark does not answer: it is left behind"

    def _begin(self) -> Driver:
        return Driver(self._plan, self._pipeline, self._settings)
