"""Know how far topics may be read without asking anybody: a thread looks while someone is interested.

Spark asks a source about 90 times a second whether there is anything new, and waits for the answer: it comes from
memory. The thread asks for the ends every `INTERVAL_S` and for everything else (ids, partitions, log starts) every
`WHOLE_INTERVAL_S`, or at once when it could not ask for the ends; it rests when nobody has been here for `INTEREST_S`.
Who comes back after that waits for one look, or nobody would see what was written during a long batch.

A look that fails is a *problem*, with the time since when there has been one. What was seen before stays.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.core.errors import AnabranchError, InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.kafka.extents import Seen

LOGGER = logging.getLogger("anabranch.spark.source")

INTERVAL_S: Final = 0.1
WHOLE_INTERVAL_S: Final = 5.0
INTEREST_S: Final = 1.0
PATIENCE_S: Final = 1.0
"""How long an answer may take at most when nobody has looked for a while."""
REPORT_S: Final = 30.0
"""How often a problem that lasts is reported."""


class Looks(Protocol):
    """What a watch asks: `anabranch.kafka.lookout.Lookout` is one."""

    def look(self) -> Seen:
        """See everything anew."""

    def look_at_ends(self, seen: Seen) -> Seen:
        """See how far what is known may be read by now."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a watch knows."""

    seen: Seen | None = None
    """What was seen last; None before the first look that succeeded."""
    problem: AnabranchError | None = None
    """Why the last look failed."""
    problem_s: float = 0.0
    """For how long there has been a problem."""
    whole: bool = False
    """Whether everything was asked for in the last look, or only the ends."""


class Watch:
    """Looks in the background. Its methods are called by one thread."""

    def __init__(self, lookout: Looks, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare; the thread begins with the first question."""
        self.looks = 0
        self._lookout = lookout
        self._clock = clock
        self._news = threading.Condition()
        self._asked_at = 0.0
        self._looked_at = float("-inf")
        self._whole_at = float("-inf")
        self._wants_whole = True
        self._at_once = False
        self._seen: Seen | None = None
        self._problem: AnabranchError | None = None
        self._problem_at = 0.0
        self._reported_at = float("-inf")
        self._broken: Exception | None = None
        self._stopped = False
        self._thread: threading.Thread | None = None

    def sight(self) -> Sight:
        """Answer from memory; wait for a look, a second at most, only if the last one was long ago."""
        with self._news:
            self._asked_at = now = self._clock()
            self._begin()
            if now - self._looked_at > INTEREST_S:
                self._news.notify_all()
                self._news.wait_for(lambda: self._looked_at >= now, PATIENCE_S)
            return self._known()

    def look_now(self, timeout_s: float) -> Sight:
        """Wait until everything was seen anew, or until the time-out has passed with nothing but problems."""
        with self._news:
            begun = self._clock()
            self._begin()
            self._wants_whole = self._at_once = True
            while not self._stopped and self._broken is None:
                self._asked_at = self._clock()
                self._news.notify_all()
                left_s = begun + timeout_s - self._clock()
                if left_s <= 0 or (self._whole_at >= begun and self._problem is None):
                    break
                self._news.wait(min(INTERVAL_S, left_s))
            return self._known()

    def stop(self) -> None:
        """End the thread after its present look; never blocks."""
        with self._news:
            self._stopped = True
            self._news.notify_all()

    def _known(self) -> Sight:
        if self._broken is not None:
            raise InternalError(f"looking at topics failed: {self._broken!r}; please report this") from self._broken
        problem_s = 0.0 if self._problem is None else self._clock() - self._problem_at
        return Sight(self._seen, self._problem, problem_s, whole=self._looked_at == self._whole_at)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="anabranch-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._wait_for_turn():
            with self._news:  # or a wish that comes just now would be taken for granted
                begun = self._clock()
                whole = self._wants_whole or self._seen is None or begun - self._whole_at > WHOLE_INTERVAL_S
                self._wants_whole = self._at_once = False
            try:
                seen = self._lookout.look() if whole or self._seen is None else self._lookout.look_at_ends(self._seen)
            except AnabranchError as error:
                self._failed(error, begun)
            except Exception as error:  # raised where it is asked: `_known`
                self._break(error)
                return
            else:
                self._succeeded(seen, begun, whole=whole)

    def _wait_for_turn(self) -> bool:
        """Wait until it is time to look; answer False when there will be no more looks."""
        with self._news:
            while not self._stopped:
                now = self._clock()
                due = self._looked_at + INTERVAL_S
                if now - self._asked_at > INTEREST_S:
                    self._news.wait()
                elif now < due and not self._at_once:
                    self._news.wait(due - now)
                else:
                    return True
            return False

    def _succeeded(self, seen: Seen, begun: float, *, whole: bool) -> None:
        with self._news:
            if self._problem is not None:
                LOGGER.warning("%s: that is over after %.0f s", self._problem, begun - self._problem_at)
            self.looks += 1
            self._seen, self._problem, self._looked_at = seen, None, begun
            if whole:
                self._whole_at = begun
            self._news.notify_all()

    def _break(self, error: Exception) -> None:
        with self._news:
            self._broken = error
            self._looked_at = float("inf")
            self._news.notify_all()

    def _failed(self, error: AnabranchError, begun: float) -> None:
        with self._news:
            if self._problem is None:
                self._problem_at, self._reported_at = begun, float("-inf")
            if begun - self._reported_at > REPORT_S:
                self._reported_at = begun
                LOGGER.warning("%s; going on with what is known, and trying again", error)
            self.looks += 1
            self._problem, self._looked_at = error, begun
            self._wants_whole = True
            self._news.notify_all()
