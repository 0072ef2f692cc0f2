"""The end of a run on Spark as its driver tells it: what was decided stays, and a stop is told as one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.core.errors import PeerError, UsageError
from anabranch.runtime.result import DONE, FORCED, STOPPED, Result
from anabranch.spark.driver import STARTING, Driver
from anabranch.spark.session import open_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class ShortQueries:
    """Queries that somebody stops before they have read everything, or not."""

    def __init__(self, *, gets_there: bool = True) -> None:
        self.gets_there = gets_there
        self.calls: list[str] = []

    def run_to_end(self) -> bool:
        self.calls.append("run to end")
        return self.gets_there

    def stop(self, catch_up_s: float = 0.0) -> None:
        self.calls.append(f"stop within {catch_up_s:g}")


def with_driver(told: Callable[[Any], Any]) -> Any:
    """Have a driver that has opened nothing do something on a loop."""

    async def live() -> Any:
        nothing: Any = None
        return await told(Driver(nothing, nothing, nothing))

    return asyncio.run(live())


@pytest.mark.parametrize("problem", [OSError("nobody answers"), PeerError("away"), ValueError("?")])
def test_closing_never_changes_how_a_run_ended(problem: Exception) -> None:
    """A JVM that was killed cannot be closed, and the sentence about it is the one that counts."""
    result = Result.of_error(PeerError("the Spark session of group billing has ended under the run"))

    def fails() -> None:
        raise problem

    async def closed(driver: Any) -> Any:
        driver._open.callback(fails)
        return await driver._closed(result)

    assert with_driver(closed) is result


@pytest.mark.parametrize(
    ("result", "gets_there", "ends_as"), [(DONE, True, DONE), (DONE, False, STOPPED), (STOPPED, True, STOPPED)]
)
def test_queries_that_were_stopped_on_their_way_to_the_end_make_a_run_that_was_stopped(
    result: Result, gets_there: bool, ends_as: Result
) -> None:
    """Whoever waits for "done" must be able to rely on it."""

    async def finished(driver: Any) -> Any:
        driver._queries = ShortQueries(gets_there=gets_there)
        return await driver._finish_queries(result)

    assert with_driver(finished) is ends_as


def test_queries_do_not_catch_up_in_a_forced_end() -> None:
    """Nothing is waited for."""
    queries = ShortQueries()

    async def finished(driver: Any) -> Any:
        driver._queries = queries
        return await driver._finish_queries(FORCED)

    assert with_driver(finished) is FORCED
    assert queries.calls == []


@pytest.mark.parametrize(("problem", "exit_code"), [(PeerError("no"), 4), (KeyError("x"), 1)])
def test_a_watch_that_fails_ends_the_run_with_its_error(problem: Exception, exit_code: int) -> None:
    """Without the watch the run would go on for ever."""

    async def fails() -> None:
        raise problem

    async def ending(driver: Any) -> Any:
        await driver._watched(fails())
        return driver._ending.result()

    assert with_driver(ending).exit_code == exit_code


def test_a_stop_while_spark_starts_is_not_kept_waiting_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Starting a JVM takes seconds."""

    async def ended(driver: Any) -> Any:
        async def opened() -> None:
            driver._is_spark_starting = True
            await driver._unless_ended(asyncio.Event().wait())

        driver._opened = opened
        driver.stop()
        return await driver._lived()

    caplog.set_level("INFO", "anabranch.spark")
    assert with_driver(ended) is STOPPED
    assert STARTING in caplog.text


def test_a_spark_connect_session_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """It has no context in this process, so it can start no member."""
    connect: Any = object()
    with pytest.raises(UsageError, match="this is a Spark Connect session"):
        open_session(app="billing", state_dir=tmp_path, spark=connect)
