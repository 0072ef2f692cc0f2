"""Which failures pass, and after how long."""

import asyncio
from random import Random

import pytest

from anabranch.control.retry import RETRY_AFTER_S_MAX, Cause, classify, retry_delay_s
from anabranch.core.errors import DecodeError, Fatal, HandlerTimeout, Poison, RetryAfter
from anabranch.core.policies import Retry


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(), Cause.TRANSIENT),
        (HandlerTimeout(), Cause.TRANSIENT),
        (asyncio.CancelledError(), Cause.TRANSIENT),
        (RetryAfter(3), Cause.LATER),
        (Poison(), Cause.POISON),
        (DecodeError(), Cause.POISON),
        (SystemExit(), Cause.POISON),
        (Fatal(), Cause.FATAL),
    ],
)
def test_errors_are_classified_by_their_type(error: BaseException, expected: Cause) -> None:
    """By default every Exception may pass; what is no Exception is poison; ours say what they are."""
    assert classify(Retry(), error) is expected


def test_a_listed_class_wins_in_the_order_fatal_poison_transient() -> None:
    """An error that is in several lists is the worst of them; one that is in none is poison."""
    retry = Retry(fatal=(MemoryError,), poison=(MemoryError, KeyError), transient=(LookupError,))
    assert classify(retry, MemoryError()) is Cause.FATAL
    assert classify(retry, KeyError()) is Cause.POISON
    assert classify(retry, IndexError()) is Cause.TRANSIENT
    assert classify(retry, OSError()) is Cause.POISON


def test_delays_grow_by_the_factor_up_to_the_limit() -> None:
    """0.1 s, doubled, at most 2 s; a high attempt does not overflow."""
    retry = Retry(attempts=None, jitter=0.0)
    delays = [retry_delay_s(retry, OSError(), attempt, 0.0, Random(1)) for attempt in (1, 2, 3, 5, 6, 7, 5000)]
    assert delays == [0.1, 0.2, 0.4, 1.6, 2.0, 2.0, 2.0]


def test_jitter_spreads_delays_within_its_bounds_and_by_its_seed() -> None:
    """Failing keys do not come back in step, and a simulation sees the same delays again."""
    retry = Retry(attempts=None, initial_s=1.0, max_s=1.0, jitter=0.2)
    spread, again = Random(7), Random(7)
    delays = [retry_delay_s(retry, OSError(), 1, 0.0, spread) for _ in range(200)]
    assert delays == [retry_delay_s(retry, OSError(), 1, 0.0, again) for _ in range(200)]
    assert all(delay is not None and 0.8 <= delay <= 1.2 for delay in delays)
    assert len(set(delays)) > 100


def test_the_last_attempt_is_not_followed_by_another() -> None:
    """`attempts` counts calls in all, `RetryAfter` included."""
    assert retry_delay_s(Retry(attempts=3, jitter=0.0), OSError(), 2, 0.0, Random(1)) == 0.2
    assert retry_delay_s(Retry(attempts=3), OSError(), 3, 0.0, Random(1)) is None
    assert retry_delay_s(Retry(attempts=3), RetryAfter(1), 3, 0.0, Random(1)) is None


def test_a_handler_names_its_own_delay() -> None:
    """`RetryAfter` is taken as it is, without jitter; what is no time means at once, and for ever means a month."""
    assert retry_delay_s(Retry(), RetryAfter(12.5), 1, 0.0, Random(1)) == 12.5
    assert retry_delay_s(Retry(), RetryAfter(-1), 1, 0.0, Random(1)) == 0.0
    assert retry_delay_s(Retry(), RetryAfter(float("nan")), 1, 0.0, Random(1)) == 0.0
    assert retry_delay_s(Retry(), RetryAfter(float("inf")), 1, 0.0, Random(1)) == RETRY_AFTER_S_MAX


def test_a_record_is_not_kept_to_die_of_age() -> None:
    """What could only be tried past its greatest age is given up now."""
    retry = Retry(attempts=None, age_s_max=10.0)
    assert retry_delay_s(retry, RetryAfter(5), 1, 4.9, Random(1)) == 5
    assert retry_delay_s(retry, RetryAfter(5), 1, 5.1, Random(1)) is None
