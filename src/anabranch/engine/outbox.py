"""Where the calls of an engine end: completions are gathered, recorded, and delivered once per loop iteration."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from anabranch.core.work import Completion
    from anabranch.engine.recording import Recording


class Outbox:
    """Completions on their way from the calls to the plane. Lives on the loop."""

    __slots__ = ("_deliver", "_fail", "_loop", "_recording", "completions", "since")

    def __init__(
        self,
        deliver: Callable[[list[Completion]], None],
        recording: Recording,
        loop: asyncio.AbstractEventLoop,
        fail: Callable[[BaseException], None] | None,
    ) -> None:
        self._deliver = deliver
        self._recording = recording
        self._loop = loop
        self._fail = fail
        self.completions: list[Completion] = []
        """Always this one list: workers hold it. Whoever makes it nonempty calls `schedule` first."""
        self.since = 0.0
        """When the first completion of this iteration came."""

    def schedule(self) -> None:
        """Deliver in the next iteration of the loop; called when the first completion is about to be added."""
        self.since = time.monotonic()
        self._loop.call_soon(self.flush)

    def add(self, completion: Completion) -> None:
        """Take one completion; the workers' loops do the same in place."""
        if not self.completions:
            self.schedule()
        self.completions.append(completion)

    def flush(self) -> None:
        """Record what has ended and deliver it."""
        completions = self.completions
        if not completions:
            return
        batch = completions[:]
        completions.clear()
        try:
            if self._recording.enabled:
                self._recording.end(batch)
            self._deliver(batch)
        except Exception as error:  # a recorder whose disk is full, a plane that is wrong: the run must not hang
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Tell of a fault of the engine's own; where nobody listens, the loop's exception handler hears it."""
        if self._fail is None:
            raise error
        self._fail(error)

    def watch(self, worker: asyncio.Task[None]) -> None:
        """Tell of the worker's own failure: what handlers raise is reported, so anything else is our fault."""
        worker.add_done_callback(self._watched)

    def _watched(self, worker: asyncio.Task[None]) -> None:
        if not worker.cancelled() and (error := worker.exception()) is not None:
            self.failed(error)
