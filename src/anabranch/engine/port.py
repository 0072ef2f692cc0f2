"""What an engine is: it runs the handlers of tasks and reports how each call ended. Lives on the runtime's loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from anabranch.core.history import Recorder
    from anabranch.core.work import Completion, Task
    from anabranch.pipeline.plan import Plan


class Engine(Protocol):
    """Every engine keeps this contract; tests/contract states it once."""

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
        """Take a plan and where to deliver. `fail` is told of a fault of the engine's own; else the loop is."""
        ...

    def start(self, resources: Any) -> None:
        """Begin; called on the loop, after the lifespan has opened its resources."""
        ...

    def submit(self, tasks: Sequence[Task]) -> None:
        """Run each task's step. Never blocks. Exactly one completion per task is delivered, in batches, on the loop.

        Before each call begins `may_start` is looked at; if it says no, the task comes back as cancelled.
        A call that exceeds its step's `timeout_s` is cancelled; HandlerTimeout is reported when it has *really* ended.
        """
        ...

    def cancel(self, tasks: Sequence[Task]) -> None:
        """End these calls if they can be ended; their completions still come, when they have really ended."""
        ...

    def close(self) -> None:
        """Take no more; never blocks."""
        ...

    async def join(self, timeout_s: float) -> bool:
        """Wait until every call has ended; answer whether all have."""
        ...

    def terminate(self) -> None:
        """End what can be ended, at once, and wait for nothing."""
        ...

    def handles(self) -> list[asyncio.Task[None]]:
        """Give the engine's own asyncio tasks, so that the loop's owner can wait for them after `terminate`."""
        ...

    def statistics(self) -> dict[str, Any]:
        """Answer plain values: running per step, calls, time-outs."""
        ...
