"""Rules on a failed call: whether it may pass, and after how long it is tried again.

The order in which an error is looked at: fatal, poison, `RetryAfter`, transient; anything else is poison. A
cancellation that came out of the handler by itself says nothing about the record and may pass.
"""

from __future__ import annotations

from asyncio import CancelledError
from enum import Enum
from typing import TYPE_CHECKING

from anabranch.core.errors import Fatal, Poison, RetryAfter

if TYPE_CHECKING:
    from random import Random

    from anabranch.core.policies import Retry

RETRY_AFTER_S_MAX = 30 * 86_400.0
"""The longest that a handler may put a record off: a timer for ever is no timer."""


class Cause(Enum):
    """What an error says about the record and about the other side."""

    TRANSIENT = "transient"
    """May pass, and tells the breaker that a call failed."""
    LATER = "later"
    """May pass, at a time that the handler named: the other side is well."""
    POISON = "poison"
    FATAL = "fatal"


def classify(retry: Retry, error: BaseException) -> Cause:
    """Say what an error means under this policy."""
    if isinstance(error, (Fatal, *retry.fatal)):
        return Cause.FATAL
    if isinstance(error, (Poison, *retry.poison)):
        return Cause.POISON
    if isinstance(error, RetryAfter):
        return Cause.LATER
    return Cause.TRANSIENT if isinstance(error, (CancelledError, *retry.transient)) else Cause.POISON


def retry_delay_s(retry: Retry, error: BaseException, attempt: int, age_s: float, spread: Random) -> float | None:
    """Answer after how long this attempt's record is tried again; None when it is given up.

    A next attempt that could only begin past the record's greatest age is not waited for.
    """
    if retry.attempts is not None and attempt >= retry.attempts:
        return None
    if isinstance(error, RetryAfter):
        delay_s = min(max(0.0, error.seconds), RETRY_AFTER_S_MAX)
    else:
        delay_s = _backoff_s(retry, attempt, spread)
    if retry.age_s_max is not None and age_s + delay_s > retry.age_s_max:
        return None
    return delay_s


def _backoff_s(retry: Retry, attempt: int, spread: Random) -> float:
    try:
        delay_s = min(retry.max_s, retry.initial_s * retry.factor ** (attempt - 1))
    except OverflowError:
        delay_s = retry.max_s
    return delay_s * (1 + retry.jitter * spread.uniform(-1, 1))
