"""A step with a plain handler: daemon threads, one hop per call there and back.

Threads are made when they are first needed, `concurrency` of them and THREADS_MAX at most; calls beyond that wait in a
queue, begun for the plane and not for the handler. `prepare` and `finish` (decoding, maps, filters, encoding) run on
the loop, as they do for async handlers, so that only the handler itself has to be safe in threads.

A thread cannot be stopped. So there is no timer: a call that took longer than `timeout_s` is reported as expired when
it has really ended, and a cancelled one as cancelled. For the same reason the threads are daemons of ours and not a
ThreadPoolExecutor, whose threads the interpreter waits for at its exit, for ever if one hangs; a Future per call would
also cost as much as the rest of the hop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.work import FILTERED, Completion
from anabranch.engine.call import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.core.work import Task
    from anabranch.engine.call import StepCall
    from anabranch.engine.outbox import Outbox

THREADS_MAX: Final = 1024
"""More threads than this only hold memory and contend for the interpreter's lock."""


class _Call:
    """One call on its way through a thread. The loop makes and reads it, one thread runs it in between."""

    __slots__ = ("arguments", "begun_at", "ended_at", "error", "task", "value", "verdict")

    def __init__(self, task: Task, arguments: tuple[Any, ...]) -> None:
        self.task = task
        self.arguments = arguments
        self.begun_at = 0.0
        self.ended_at = 0.0
        self.value: Any = None
        self.error: BaseException | None = None
        self.verdict: Verdict | None = None


class ThreadStep:
    """Runs the calls of one step with a plain handler."""

    def __init__(self, call: StepCall, concurrency: int, outbox: Outbox, may_start: Callable[[], bool] | None) -> None:
        self._call = call
        self._threads_max = min(concurrency, THREADS_MAX)
        self._outbox = outbox
        self._may_start = may_start
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._calls: dict[Task, _Call] = {}
        self._ended: deque[_Call] = deque()
        self._collecting = False
        self._terminated = False
        self._threads = 0
        self.expired = 0

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue these calls for the threads."""
        for task in tasks:
            call = self._prepared(task)
            if call is not None:
                self._calls[task] = call
                self._queue.put(call)
        while self._threads < self._threads_max and self._threads < len(self._calls):
            self._threads += 1
            name = f"anabranch-{self._call.name}-{self._threads}"
            Thread(target=self._serve, name=name, daemon=True).start()

    def cancel(self, wanted: set[Task]) -> None:
        """Mark those of these calls that are here: one that has not begun does not, one that has is waited for."""
        for task in wanted:
            if (call := self._calls.get(task)) is not None:
                call.verdict = Verdict.CANCELLED

    def terminate(self) -> None:
        """Begin nothing more and report nothing any more; what runs is left behind."""
        self._terminated = True
        for call in self._calls.values():
            call.verdict = Verdict.CANCELLED
        for _ in range(self._threads):
            self._queue.put(None)

    def handles(self) -> list[asyncio.Task[None]]:
        """Give nothing: a thread that is left behind is not waited for."""
        return []

    def overdue(self, now: float) -> int:
        """Count calls that were cancelled, or are past their time-out, and still run."""
        timeout_s = self._call.timeout_s
        return sum(
            1
            for call in self._calls.values()
            if call.begun_at and (call.verdict or (timeout_s is not None and now - call.begun_at > timeout_s))
        )

    def check_invariants(self) -> None:
        """Assert what the module says."""
        assert self._threads <= self._threads_max

    def _prepared(self, task: Task) -> _Call | None:
        """Make the call, or complete the task when there is none to make."""
        try:
            value = self._call.prepare(task)
            if value is FILTERED:
                self._outbox.add(Completion(task, FILTERED, None))
                return None
            context = self._call.context
            return _Call(task, (value,) if context is None else (value, context(task)))
        except BaseException as error:  # whatever user code raises is a report
            self._outbox.add(Completion(task, None, error))
            return None

    def _serve(self) -> None:
        """Run calls; the body of a thread."""
        handler, may_start, take, monotonic = self._call.handler, self._may_start, self._queue.get, time.monotonic
        while (call := take()) is not None:
            if call.verdict is None and may_start is not None and not may_start():
                call.verdict = Verdict.CANCELLED
            if call.verdict is None:
                call.begun_at = monotonic()
                try:
                    call.value = handler(*call.arguments)
                except BaseException as error:  # whatever user code raises is a report, also SystemExit
                    call.error = error
                call.ended_at = monotonic()
            self._ended.append(call)
            if not self._collecting and not self._notify():
                return

    def _notify(self) -> bool:
        """Have the loop collect what has ended; answer False when there is no loop any more."""
        self._collecting = True
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:  # closed: this call was left behind, and nobody waits for it
            return False
        return True

    def _collect(self) -> None:
        # In this order: a thread that still sees the flag set has appended before we look.
        self._collecting = False
        if self._terminated:
            return
        while self._ended:
            call = self._ended.popleft()
            del self._calls[call.task]
            self._outbox.add(self._completion(call))

    def _completion(self, call: _Call) -> Completion:
        task, timeout_s = call.task, self._call.timeout_s
        if call.verdict is None and timeout_s is not None and call.ended_at - call.begun_at > timeout_s:
            call.verdict = Verdict.EXPIRED
            self.expired += 1
        if call.verdict is not None:
            return self._call.overruled(task, call.verdict, call.error)
        if call.error is not None:
            return Completion(task, None, call.error)
        try:
            return Completion(task, self._call.finish(task, call.value), None)
        except BaseException as error:  # whatever user code raises is a report
            return Completion(task, None, error)
