"""Wait for something to become true, with a deadline: how these tests synchronise with threads and processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

DEADLINE_S = 30.0
"""Far above what anything here takes; a test that reaches it has found a fault."""


def eventually(condition: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Ask until the answer is true and give it; fail with `what` was awaited."""
    end = time.monotonic() + deadline_s
    while not (answer := condition()):
        assert time.monotonic() < end, f"waited {deadline_s:g} s in vain: {what}"
        time.sleep(0.01)
    return answer
