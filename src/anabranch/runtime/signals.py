"""SIGINT and SIGTERM while a run lasts: the first stops it, a second one forces."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stoppable(Protocol):
    """What signals can end."""

    def stop(self) -> None:
        """Begin to stop; never blocks."""

    def terminate(self) -> None:
        """Force the end; never blocks."""


@contextmanager
def stopping(run: Stoppable) -> Iterator[None]:
    """Let signals stop the run inside the block. Outside of the main thread, where Python takes none, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = 0

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            run.stop()
        else:
            run.terminate()

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
