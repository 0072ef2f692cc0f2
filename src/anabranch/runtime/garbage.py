"""Look for garbage less often while a run is on.

A run holds tens of thousands of records and tasks, all of them alive. With Python's own thresholds the collector looks
at the young ones every 700 allocations and at all of them again and again, and finds nothing: the plane makes no
cycles. What cycles user code makes are found a little later; they cannot grow beyond the threshold in between.
The thresholds belong to the process, so they are only ever raised, and put back when the last run has ended.
"""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

YOUNG: Final = 20_000
"""Allocations between two looks at the youngest objects."""
_lock: Final = threading.Lock()
_runs = 0
_before: tuple[int, int, int] | None = None


@contextmanager
def rare_collections() -> Iterator[None]:
    """Raise the threshold while at least one block is entered, unless it is higher already or collecting is off."""
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _runs, _before  # noqa: PLW0603  # the thresholds are the process's, too
    with _lock:
        _runs += 1
        young, middle, old = gc.get_threshold()
        if _runs == 1 and gc.isenabled() and 0 < young < YOUNG:
            _before = (young, middle, old)
            gc.set_threshold(YOUNG, middle, old)


def _leave() -> None:
    global _runs, _before  # noqa: PLW0603
    with _lock:
        _runs -= 1
        if _runs == 0 and _before is not None:
            if gc.get_threshold()[0] == YOUNG:  # else someone has chosen since: that holds
                gc.set_threshold(*_before)
            _before = None
