"""The async engine: many calls at once on one event loop, plain handlers in threads beside it.

Each step runs by itself (`CoroutineStep` or `ThreadStep`); their completions meet in one outbox, which delivers them
once per iteration of the loop. A step's result is the completion's value; the plane makes it the task's value when it
moves the task on, so a task that is retried still has the value that its step began with.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from anabranch.engine.call import StepCall, cancelled
from anabranch.engine.coroutine_step import CoroutineStep
from anabranch.engine.outbox import Outbox
from anabranch.engine.recording import Recording
from anabranch.engine.thread_step import ThreadStep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.core.history import Recorder
    from anabranch.core.work import Completion, Task
    from anabranch.pipeline.plan import Plan

REFUSED_S: Final = 0.05
"""How long a task that may not start is kept before it is given back; at once, the two would chase each other."""


class AsyncEngine:
    """Runs handlers on the loop that `start` is called on."""

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
        self._steps: list[CoroutineStep | ThreadStep] = []
        self._outbox: Outbox
        self._loop: asyncio.AbstractEventLoop
        self._submitted = [0] * len(plan.steps)
        self._ended = [0] * len(plan.steps)
        self._closed = self._terminated = False
        self._all_ended: asyncio.Future[None] | None = None

    def start(self, resources: Any) -> None:
        """Begin; called on the loop, after the lifespan has opened its resources."""
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(self._take, self._recording, self._loop, self._fail)
        for index, step in enumerate(self._plan.steps):
            call = StepCall(self._plan, index, resources, self._cluster_id)
            kind = CoroutineStep if step.is_async else ThreadStep
            self._steps.append(kind(call, step.concurrency, self._outbox, self._may_start))

    def submit(self, tasks: Sequence[Task]) -> None:
        """Run each task's step; see the port."""
        assert not self._closed, "submit after close"
        if self._may_start is not None and not self._may_start():
            self._refuse(tasks)
            return
        if self._recording.enabled:
            self._recording.begin(tasks)
        if len(self._steps) == 1:
            self._submitted[0] += len(tasks)
            self._steps[0].submit(tasks)
            return
        for index, step in enumerate(self._steps):
            own = [task for task in tasks if task.step == index]
            if own:
                self._submitted[index] += len(own)
                step.submit(own)

    def _refuse(self, tasks: Sequence[Task]) -> None:
        """Give back what may not start, after a while: the plane submits it again. A history hears nothing of it."""
        for task in tasks:
            self._submitted[task.step] += 1
        self._loop.call_later(REFUSED_S, self._return, [cancelled(task) for task in tasks])

    def _return(self, completions: list[Completion]) -> None:
        if not self._terminated:
            self._take(completions)

    def cancel(self, tasks: Sequence[Task]) -> None:
        """End these calls if they can be ended; see the port."""
        wanted = set(tasks)
        for step in self._steps:
            step.cancel(wanted)

    def close(self) -> None:
        """Take no more; never blocks."""
        self._closed = True

    async def join(self, timeout_s: float) -> bool:
        """Wait until every call has ended and was delivered; answer whether all have."""
        if self._submitted != self._ended:
            self._all_ended = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_ended], timeout=timeout_s)
            self._all_ended = None
        return self._submitted == self._ended

    def terminate(self) -> None:
        """End what can be ended, at once, and wait for nothing. No completion comes any more."""
        self._closed = self._terminated = True
        for step in self._steps:
            step.terminate()

    def handles(self) -> list[asyncio.Task[None]]:
        """Give the asyncio tasks of this engine, so that the loop's owner can wait for them after `terminate`."""
        return [handle for step in self._steps for handle in step.handles()]

    def statistics(self) -> dict[str, Any]:
        """Answer plain values per step: calls running, calls made, time-outs, calls that were ended and still run."""
        now = time.monotonic()
        return {
            step.name: {
                "running": submitted - ended,
                "calls": submitted,
                "expired": running.expired,
                "overdue": running.overdue(now),
            }
            for step, running, submitted, ended in zip(
                self._plan.steps, self._steps, self._submitted, self._ended, strict=True
            )
        }

    def check_invariants(self) -> None:
        """Assert what must hold between two turns of the loop."""
        assert all(ended <= submitted for ended, submitted in zip(self._ended, self._submitted, strict=True))
        for step in self._steps:
            step.check_invariants()

    def _take(self, completions: list[Completion]) -> None:
        """Count what has ended, then pass it on: the plane may move a task to its next step while it looks at it."""
        ended = self._ended
        if len(ended) == 1:
            ended[0] += len(completions)
        else:
            for completion in completions:
                ended[completion.task.step] += 1
        self._deliver(completions)
        if self._all_ended is not None and self._submitted == ended and not self._all_ended.done():
            self._all_ended.set_result(None)
