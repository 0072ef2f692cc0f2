"""One step as an engine calls it, and how a call that we ended is reported.

A call ends in one of four ways: it returns, it raises, it is *expired* (it took longer than `timeout_s`) or *cancelled*
(by us: revoke, stop). The last two are verdicts of ours, and they win: what an ended call still returned or raised,
late, is not believed, because the plane was promised that this attempt is over (fault 14).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import HandlerTimeout
from anabranch.core.work import Completion
from anabranch.pipeline.context import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.core.work import Output, Task
    from anabranch.pipeline.plan import Plan


class Verdict(Enum):
    """Why we ended a call."""

    EXPIRED = "expired"
    CANCELLED = "cancelled"


class StepCall:
    """The functions of one step, made ready for calling."""

    __slots__ = ("_cluster_id", "_resources", "context", "finish", "handler", "name", "prepare", "timeout_s")

    def __init__(self, plan: Plan, index: int, resources: Any, cluster_id: str) -> None:
        step = plan.steps[index]
        last = index == len(plan.steps) - 1
        self.name = step.name
        self.handler = step.handler
        self.prepare = step.prepare
        self.finish: Callable[[Task, Any], Any] = step.finish or (_no_outputs if last else _pass_on)
        """From what the handler returned to the completion's value."""
        self.timeout_s = step.timeout_s
        self._resources = resources
        self._cluster_id = cluster_id
        self.context: Callable[[Task], Context] | None = self._context if step.wants_context else None
        """Makes the handler's second argument; None when it takes only one."""

    def _context(self, task: Task) -> Context:
        return Context(task, self.name, self._resources, self._cluster_id)

    def overruled(self, task: Task, verdict: Verdict, error: BaseException | None) -> Completion:
        """Report a call that we ended; `error` is what it raised at its end, if anything."""
        if verdict is Verdict.CANCELLED:
            return cancelled(task)
        timeout = HandlerTimeout(
            f"step {self.name!r} took longer than timeout_s={self.timeout_s:g} and was ended: "
            "make the call quicker, or give it more time with process(…, timeout_s=…)"
        )
        if error is not None and not isinstance(error, asyncio.CancelledError):
            timeout.__cause__ = error
        return Completion(task, None, timeout)


async def forget_cancellation(runner: asyncio.Task[Any]) -> None:
    """Clear what a cancellation left behind in the task that ran a call, or the next call would suffer from it.

    It was thrown into the call, and caught, or it is still to come: a handler that cancels its own task and returns.
    """
    while runner.cancelling():
        runner.uncancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)


def cancelled(task: Task) -> Completion:
    """Report a call that was cancelled by us, or never begun."""
    return Completion(task, None, asyncio.CancelledError("ended by the pipeline"), True)


def _pass_on(_task: Task, result: Any) -> Any:
    return result


def _no_outputs(_task: Task, _result: Any) -> Sequence[Output]:
    return ()
