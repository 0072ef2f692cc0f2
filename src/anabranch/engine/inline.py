"""The reference engine: one call at a time, in the order of submission, on the loop.

It is the plainest thing that keeps the engine's contract, and what the others are compared with. Async handlers are
awaited, plain ones are called where they stand and hold the loop meanwhile. Each completion is delivered by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from anabranch.core.work import FILTERED, Completion
from anabranch.engine.call import StepCall, Verdict, cancelled, forget_cancellation
from anabranch.engine.outbox import Outbox
from anabranch.engine.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.core.history import Recorder
    from anabranch.core.work import Task
    from anabranch.pipeline.plan import Plan


class InlineEngine:
    """Runs one call after another."""

    def __init__(
        self,
        plan: Plan,
        deliver: Callable[[list[Completion]], None],
        *,
        recorder: Recorder,
        member: str,
        may_start: Callable[[], bool] | None = None,
        cluster_id: str = "",
        fail: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._plan = plan
        self._deliver = deliver
        self._recording = Recording(plan, recorder, member)
        self._may_start = may_start
        self._cluster_id = cluster_id
        self._fail = fail
        self._calls: list[StepCall] = []
        self._is_async = [step.is_async for step in plan.steps]
        self._waiting: deque[Task] = deque()
        self._running: Task | None = None
        self._verdict: Verdict | None = None
        self._runner: asyncio.Task[None] | None = None
        self._closed = False
        self._terminated = False
        self._made = [0] * len(plan.steps)
        self._expired = [0] * len(plan.steps)
        self._outbox: Outbox

    def start(self, resources: Any) -> None:
        """Begin; called on the loop, after the lifespan has opened its resources."""
        loop = asyncio.get_running_loop()
        self._outbox = Outbox(self._deliver, self._recording, loop, self._fail)
        steps = range(len(self._plan.steps))
        self._calls = [StepCall(self._plan, index, resources, self._cluster_id) for index in steps]

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue these behind all others; see the port."""
        assert not self._closed, "submit after close"
        if self._recording.enabled:
            self._recording.begin(tasks)
        self._waiting.extend(tasks)
        if self._runner is None:
            self._runner = asyncio.get_running_loop().create_task(self._run(), name="anabranch-inline")
            self._outbox.watch(self._runner)

    def cancel(self, tasks: Sequence[Task]) -> None:
        """End these calls if they can be ended; see the port."""
        wanted = set(tasks)
        if self._running in wanted and self._runner is not None:
            self._verdict = Verdict.CANCELLED
            self._runner.cancel()
        for task in [task for task in self._waiting if task in wanted]:
            self._waiting.remove(task)
            self._outbox.add(cancelled(task))

    def close(self) -> None:
        """Take no more; never blocks."""
        self._closed = True

    async def join(self, timeout_s: float) -> bool:
        """Wait until every call has ended and was delivered; answer whether all have."""
        if self._runner is not None:
            await asyncio.wait([self._runner], timeout=timeout_s)
        self._outbox.flush()
        return self._runner is None

    def terminate(self) -> None:
        """End what can be ended, at once, and wait for nothing. No completion comes any more."""
        self._closed = self._terminated = True
        self._waiting.clear()
        if self._runner is not None:
            self._verdict = Verdict.CANCELLED
            self._runner.cancel()

    def handles(self) -> list[asyncio.Task[None]]:
        """Give the asyncio tasks of this engine, so that the loop's owner can wait for them after `terminate`."""
        return [] if self._runner is None else [self._runner]

    def statistics(self) -> dict[str, Any]:
        """Answer plain values per step: calls running, calls made, time-outs, calls that were ended and still run."""
        submitted = [*self._waiting, *([] if self._running is None else [self._running])]
        overdue = self._running if self._verdict is not None else None
        return {
            step.name: {
                "running": sum(1 for task in submitted if task.step == index),
                "calls": self._made[index],
                "expired": self._expired[index],
                "overdue": int(overdue is not None and overdue.step == index),
            }
            for index, step in enumerate(self._plan.steps)
        }

    def check_invariants(self) -> None:
        """Assert what must hold between two turns of the loop."""
        assert not self._waiting or self._runner is not None

    async def _run(self) -> None:
        while self._waiting:
            self._running = task = self._waiting.popleft()
            completion = await self._called(task)
            self._running = None
            if self._terminated:
                return
            self._outbox.add(completion)
            self._outbox.flush()
        self._runner = None

    async def _called(self, task: Task) -> Completion:
        """Run one call to its real end and judge it."""
        call = self._calls[task.step]
        self._verdict = None
        self._made[task.step] += 1
        begun_at = time.monotonic()
        try:
            async with asyncio.timeout(None) as timer:
                if self._may_start is not None and not self._may_start():
                    return cancelled(task)
                value = call.prepare(task)
                if value is not FILTERED:
                    if call.timeout_s is not None:
                        timer.reschedule(asyncio.get_running_loop().time() + call.timeout_s)
                    result = call.handler(value) if call.context is None else call.handler(value, call.context(task))
                    value = call.finish(task, await result if self._is_async[task.step] else result)
            completion = Completion(task, value, None)
        except BaseException as error:  # whatever user code raises is a report, also SystemExit
            completion = Completion(task, None, error)
        assert self._runner is not None
        await forget_cancellation(self._runner)
        late = call.timeout_s is not None and time.monotonic() - begun_at > call.timeout_s
        if self._verdict is None and (timer.expired() or late):
            self._verdict = Verdict.EXPIRED
            self._expired[task.step] += 1
        return completion if self._verdict is None else call.overruled(task, self._verdict, completion.error)
