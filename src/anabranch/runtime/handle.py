"""The handle of a run, whatever engine it is on: a thread with an event loop of its own, on which the run's story is
told, and the methods by which others ask and tell it.

Every method may be called from any thread, also from a handler or a signal handler, so none of them takes a lock that
the other side could hold.

The thread is a daemon: whoever starts a run joins it. What never gives the loop back cannot be stopped by anyone;
`join` notices that the end is overdue and gives up on it, so that a process can always end.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from anabranch.core.errors import InternalError
from anabranch.runtime.result import FORCED, ExitCode, Result

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LOGGER: Final = logging.getLogger("anabranch.run")
ANSWER_S: Final = 1.0
"""How long `statistics` waits for a loop that is busy before it gives the last answer again."""
_WAIT_S: Final = 0.1
_STILL_RUNNING: Final = Result(ExitCode.INTERNAL, "still running")


class Story(Protocol):
    """A run as its loop sees it; everything is called there."""

    async def run(self) -> Result:
        """Open, run and shut down; never raises."""

    def stop(self, drain_s: float | None = None) -> None:
        """Begin to stop."""

    def terminate(self) -> None:
        """End now."""

    def statistics(self) -> dict[str, Any]:
        """Answer plain values."""


T = TypeVar("T", bound=Story)
H = TypeVar("H", bound="Handle[Any]")


class Handle(ABC, Generic[T]):
    """A pipeline that runs, seen from outside."""

    def __init__(self, name: str, unopened: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        """Begin to run. What a subclass needs for that it has set before."""
        self._story: T | None = None
        self._result: Result | None = None
        self._last = unopened
        self._ended = threading.Event()
        self._stop_asked: tuple[float | None] | None = None
        self._stop_at: float | None = None
        self._forced_at: float | None = None
        self._is_left_behind = False
        self._loop = loop
        self._thread = threading.Thread(target=self._main, name=f"anabranch-{name}", daemon=True)
        self._thread.start()

    @property
    def result(self) -> Result:
        """How the run ended; before that, that it is still running."""
        return self._result or _STILL_RUNNING

    def statistics(self) -> dict[str, Any]:
        """Answer plain values, as JSON can hold them. From a loop that does not answer: the last ones, as `stale`."""
        story = self._story
        if story is None or self._ended.is_set():
            return self._last
        if threading.get_ident() == self._thread.ident:
            return story.statistics()
        answer: Future[dict[str, Any]] = Future()

        def fill() -> None:
            try:
                answer.set_result(story.statistics())
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
        if self._story is not None:
            self._tell(self._story.stop, drain_s)

    def terminate(self) -> None:
        """Force the end: nothing is waited for or committed. Never blocks."""
        self._forced_at = time.monotonic()
        if self._story is not None:
            self._tell(self._story.terminate)

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
        """Look whether the run was asked to end and does not."""
        if self._is_left_behind:
            return True
        overdue = self._overdue()
        if overdue is None or self._result is not None:  # it has ended after all, and says so in a moment
            return False
        result, sentence = overdue
        LOGGER.warning("%s", sentence)
        self._result = result
        self._is_left_behind = True
        return True

    @abstractmethod
    def _overdue(self) -> tuple[Result, str] | None:
        """Return how the run ends when it should have ended long ago, and why it has not."""

    # ── the run's own thread ──

    @abstractmethod
    def _begin(self) -> T:
        """Make the story."""

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            result = self._told(self._loop.create_task(self._live()))
        except BaseException as error:  # told by `join`
            LOGGER.exception("the run's thread failed")
            failure = InternalError(f"{type(error).__name__}: {error}; this is a fault in anabranch: please report it")
            failure.__cause__ = error
            result = Result.of_error(failure)
        if self._result is None:
            self._result = result
        self._loop.close()
        self._ended.set()

    def _told(self, telling: asyncio.Task[Result]) -> Result:
        """Let the loop run until the story has ended."""
        return self._loop.run_until_complete(telling)

    async def _live(self) -> Result:
        self._story = story = self._begin()
        if self._forced_at is not None:
            return FORCED
        if self._stop_asked is not None:
            story.stop(*self._stop_asked)
        result = await story.run()
        self._last = story.statistics()
        return result


@asynccontextmanager
async def lasting(live: H) -> AsyncIterator[H]:
    """Have a run last as long as a block, then stop it cleanly; raise what ended it, if that was an error."""
    try:
        yield live
    finally:
        live.stop()
        await asyncio.to_thread(live.join)
