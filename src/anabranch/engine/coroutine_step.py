"""A step with an async handler: worker coroutines that take the next task and await the handler directly.

State: `waiting`, the tasks that no worker has taken; `idle`, the workers that found nothing, each on a future of its
own; `waking`, how many wake-ups are under way; `fan`, how many workers to wake at a time. Workers are made when they
are first needed, `concurrency` at most. There is no asyncio task, future or queue per record.

Waking is a chain. A worker that takes a task while more wait wakes `fan` others, unless wake-ups are under way already,
and then runs its own. A worker that was woken so and finds a task doubles `fan`, one that finds nothing sets it back to
1. So handlers that wait soon get all their workers in one loop iteration, and handlers that never wait are all run by
one worker, which wakes one other in vain per batch. (Waking one at a time was tried: 100 workers then begin in 100
iterations, and 5 ms of waiting took 6.5.) The rule that holds: while tasks wait, a wake-up is under way, or a worker is
running, or all workers are busy.

When many calls that waited end in one iteration, completions are delivered every TOLD_AT of them and not only at its
end: the next workers then find what follows and go on with it at once, without being woken. (5 ms calls of 100 keys:
0.92 of the ideal instead of 0.89 on a busy machine; 16 is no better and costs more.) That a call waited is seen by
`current`, the worker that began a call last: if it is another one, others had their turn meanwhile. A worker whose
calls never wait does not do so, else it would never come to an end.

A worker that runs calls which never wait would hold the loop until `waiting` is empty. It gives way after SLICE_S, so
that completions, commits and revokes go on.

Ending a call: the worker's own asyncio task is cancelled, with the verdict noted beside it. The handler gets
CancelledError where it waits, and the worker catches what comes out. A handler that swallows its cancellation simply
goes on: the completion comes when it has really ended, and still says what we ruled (fault 16). It is never cancelled
in between two calls: a worker that holds a task is suspended nowhere but in that task's handler.

Time-outs: a call notes its deadline, and one timer per step looks at the workers when the earliest may be due. As long
as calls are shorter than the time-out, that is one look per `timeout_s` and not one timer per call.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.work import FILTERED, Completion
from anabranch.engine.call import Verdict, cancelled, forget_cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.core.work import Task
    from anabranch.engine.call import StepCall
    from anabranch.engine.outbox import Outbox

SLICE_S: Final = 0.02
"""How long calls that never wait may keep the loop; well below any grace, far above the cost of giving way."""
TOLD_AT: Final = 32
"""So many completions are delivered at once, in the middle of an iteration, when calls that waited end together."""
LOOK_S_MIN: Final = 0.001
"""The least time between two looks at deadlines: a loop's timers are no finer."""
_completion: Final[Callable[[tuple[Any, ...]], Completion]] = partial(tuple.__new__, Completion)  # half the cost


class _Worker:
    """One coroutine that runs calls."""

    __slots__ = ("deadline", "handle", "task", "verdict", "waiter")

    def __init__(self) -> None:
        self.handle: asyncio.Task[None]
        self.waiter: asyncio.Future[None] | None = None
        self.task: Task | None = None
        """Whose call runs."""
        self.deadline = 0.0
        """When it expires; 0 without a time-out."""
        self.verdict: Verdict | None = None


class CoroutineStep:
    """Runs the calls of one step with an async handler."""

    def __init__(self, call: StepCall, concurrency: int, outbox: Outbox, may_start: Callable[[], bool] | None) -> None:
        self._call = call
        self._concurrency = concurrency
        self._outbox = outbox
        self._may_start = may_start
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Task] = deque()
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._waking = 0
        self._fan = 1
        self._first = False  # the next worker to wake up is the first of its chain
        self._current: _Worker | None = None  # began a call last
        self._look: asyncio.TimerHandle | None = None
        self._terminated = False
        self.expired = 0

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue these calls and wake a worker for them."""
        self._waiting.extend(tasks)
        if not self._waking:
            self._first = True
            self._wake()

    def cancel(self, wanted: set[Task]) -> None:
        """End those of these calls that are here; what has not begun comes back at once."""
        for worker in self._workers:
            if worker.task in wanted:
                worker.verdict = Verdict.CANCELLED
                worker.handle.cancel()
        if not wanted.isdisjoint(self._waiting):
            waiting = list(self._waiting)
            self._waiting.clear()  # the workers hold this very deque
            self._waiting.extend(task for task in waiting if task not in wanted)
            for task in waiting:
                if task in wanted:
                    self._outbox.add(cancelled(task))

    def terminate(self) -> None:
        """Cancel every worker and report nothing any more."""
        self._terminated = True
        self._waiting.clear()
        if self._look is not None:
            self._look.cancel()
        for worker in self._workers:
            worker.verdict = Verdict.CANCELLED
            worker.handle.cancel()

    def handles(self) -> list[asyncio.Task[None]]:
        """Give the workers' tasks, to be waited for after `terminate`."""
        return [worker.handle for worker in self._workers]

    def overdue(self, _now: float) -> int:
        """Count calls that were ended and still run."""
        return sum(1 for worker in self._workers if worker.task is not None and worker.verdict is not None)

    def check_invariants(self) -> None:
        """Assert what the module says."""
        assert len(self._workers) <= self._concurrency
        assert all(worker.task is None for worker in self._idle)
        busy = sum(1 for worker in self._workers if worker.task is not None)
        assert not self._waiting or self._waking or busy == self._concurrency

    def _wake(self) -> None:
        idle = self._idle
        wanted = min(self._fan, len(self._waiting))
        for _ in range(min(wanted, len(idle))):
            worker = idle.pop()
            assert worker.waiter is not None
            worker.waiter.set_result(None)
            self._waking += 1
        while self._waking < wanted and len(self._workers) < self._concurrency:
            worker = _Worker()
            worker.handle = self._loop.create_task(self._work(worker), name=f"anabranch-{self._call.name}")
            self._outbox.watch(worker.handle)
            self._workers.append(worker)
            self._waking += 1

    async def _work(self, worker: _Worker) -> None:
        """Run calls until terminated. The loop of the hot path: everything it needs is local."""
        handler, prepare, finish = self._call.handler, self._call.prepare, self._call.finish
        context, timeout_s, may_start = self._call.context, self._call.timeout_s, self._may_start
        outbox, monotonic, cancelling = self._outbox, time.monotonic, worker.handle.cancelling
        waiting, completions, done = self._waiting, outbox.completions, _completion
        self._woken()
        while True:
            if not waiting:
                await self._wait(worker)
                continue
            self._current = worker
            worker.task = task = waiting.popleft()
            if waiting and not self._waking:
                self._wake()
            try:
                if may_start is not None and not may_start():
                    completion = cancelled(task)
                elif (value := prepare(task)) is FILTERED:
                    completion = Completion(task, FILTERED, None)
                else:
                    if timeout_s is not None:
                        self._expect(worker, monotonic() + timeout_s)
                    value = await (handler(value) if context is None else handler(value, context(task)))
                    completion = done((task, finish(task, value), None, False))
            except BaseException as error:  # whatever user code raises is a report, also SystemExit
                completion = Completion(task, None, error)
            if completion.error is not None or worker.verdict is not None or cancelling():
                completion = await self._judged(worker, task, completion)
            worker.task = None
            if not completions:
                outbox.schedule()
            completions.append(completion)
            if self._current is not worker and len(completions) >= TOLD_AT:
                outbox.flush()
            elif monotonic() - outbox.since > SLICE_S:
                self._waking += 1  # of this worker itself
                await asyncio.sleep(0)
                self._waking -= 1

    async def _wait(self, worker: _Worker) -> None:
        worker.waiter = self._loop.create_future()
        self._idle.append(worker)
        await worker.waiter
        self._woken()

    def _woken(self) -> None:
        self._waking -= 1
        if self._first:
            self._first = False
        else:
            self._fan = min(2 * self._fan, self._concurrency) if self._waiting else 1

    async def _judged(self, worker: _Worker, task: Task, completion: Completion) -> Completion:
        """Apply our verdict, if there is one, and make the worker fit for the next call."""
        if self._terminated:  # or left behind, and collected with the loop
            raise completion.error if isinstance(completion.error, GeneratorExit) else asyncio.CancelledError
        await forget_cancellation(worker.handle)
        if worker.verdict is None:
            return completion
        verdict, worker.verdict = worker.verdict, None
        return self._call.overruled(task, verdict, completion.error)

    def _expect(self, worker: _Worker, deadline: float) -> None:
        worker.deadline = deadline
        if self._look is None:
            self._look = self._loop.call_at(self._loop.time() + deadline - time.monotonic(), self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        now = time.monotonic()
        self._look = None
        earliest = None
        for worker in self._workers:
            if worker.task is None or worker.verdict is not None:
                continue
            if worker.deadline <= now:
                worker.verdict = Verdict.EXPIRED
                worker.handle.cancel()
                self.expired += 1
            elif earliest is None or worker.deadline < earliest:
                earliest = worker.deadline
        if earliest is not None:
            self._look = self._loop.call_later(max(LOOK_S_MIN, earliest - now), self._look_at_deadlines)
