"""What user code left on a run's loop: it is cancelled, and what does not end is kept for as long as the process lives.

A coroutine that swallows its cancellation cannot be ended. Nor may it be collected: Python would complain about a task
that was destroyed while pending, and would throw GeneratorExit into the coroutine, which may swallow that, too, and go
round in circles when the process is to end. Module globals are cleared at exit; the frames of daemon threads are not.
So one such thread, which does nothing, holds all that was left behind.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

_lock: Final = threading.Lock()
_left_behind: Final[list[asyncio.Task[Any]]] = []


async def end_leftovers(timeout_s: float) -> None:
    """Cancel all other tasks of this loop, and close its async generators; what has not ended in time is kept."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, pending = await asyncio.wait(left, timeout=timeout_s)
        _keep(pending)
    closing = asyncio.ensure_future(asyncio.get_running_loop().shutdown_asyncgens())
    _, pending = await asyncio.wait([closing], timeout=timeout_s)
    _keep(pending)


def _keep(tasks: set[asyncio.Task[Any]]) -> None:
    if not tasks:
        return
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio.gather does
    with _lock:
        is_first = not _left_behind
        _left_behind.extend(tasks)
    if is_first:
        threading.Thread(target=_hold, args=(_left_behind,), name="anabranch-left-behind", daemon=True).start()


def _hold(_tasks: list[asyncio.Task[Any]]) -> None:
    threading.Event().wait()
