"""When a step stops calling, and when it begins again."""

from typing import Any

from anabranch.control.breaker import BreakerState, StepBreaker
from anabranch.core.policies import Breaker
from anabranch.core.work import Task

PROBE: Any = Task.__new__(Task)


def opened(breaker: StepBreaker, now: float = 0.0) -> StepBreaker:
    breaker.observe(0, [f"key{index}" for index in range(20)], "OSError: down", now)
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_it_opens_on_half_of_twenty_calls_on_five_keys() -> None:
    """The default rule, each part of it needed."""
    few_calls = StepBreaker(Breaker())
    few_calls.observe(9, [f"key{index}" for index in range(10)], "e", 0.0)
    few_keys = StepBreaker(Breaker())
    few_keys.observe(0, ["a", "b", "c", "d"] * 10, "e", 0.0)
    few_failures = StepBreaker(Breaker())
    few_failures.observe(11, [f"key{index}" for index in range(10)], "e", 0.0)
    assert few_calls.is_closed
    assert few_keys.is_closed
    assert few_failures.is_closed
    enough = StepBreaker(Breaker())
    enough.observe(10, [f"key{index}" for index in range(10)], "e", 0.0)
    assert enough.state is BreakerState.OPEN


def test_keys_are_counted_over_the_window_not_per_batch() -> None:
    """Five keys that fail one after the other are five keys."""
    breaker = StepBreaker(Breaker(calls_min=5))
    for index in range(5):
        assert breaker.is_closed
        breaker.observe(0, [f"key{index}"], "e", index * 1.0)
    assert not breaker.is_closed


def test_an_outage_after_healthy_minutes_opens_it_within_a_second() -> None:
    """200,000 good calls in the window do not hide that everything fails now: records have 1.2 s before they die."""
    breaker = StepBreaker(Breaker())
    now = 0.0
    while now < 10.0:
        breaker.observe(200, [], "", now)
        now += 0.01
    begin = now
    while breaker.is_closed:
        breaker.observe(0, [f"key{int(now * 1000) % 97}"], "OSError: down", now)
        now += 0.005
        breaker.check_invariants()
    assert now - begin < 0.75


def test_a_third_of_failures_at_a_high_rate_does_not_open_it() -> None:
    """A bucket that has just begun is not judged alone: ten failures in a row at its start are chance."""
    breaker = StepBreaker(Breaker())
    for tick in range(2000):
        failed = [f"key{tick}-{index}" for index in range(30 if tick % 3 == 2 else 0)]
        breaker.observe(0 if failed else 30, failed, "e", tick * 0.005)
    assert breaker.is_closed


def test_failures_that_are_long_ago_are_forgotten() -> None:
    """The window is as long as it says, and bounded in memory."""
    breaker = StepBreaker(Breaker(window_s=10.0))
    for index in range(19):
        breaker.observe(0, [f"key{index}"], "e", 0.0)
    breaker.observe(0, ["late"], "e", 11.0)
    assert breaker.is_closed
    for tick in range(10_000):
        breaker.observe(1, [], "", 12 + tick * 0.05)
    breaker.check_invariants()


def test_probes_come_one_at_a_time_and_less_and_less_often() -> None:
    """1 s, then doubled after each failure, at most the limit; success closes it and starts again from 1 s."""
    breaker = opened(StepBreaker(Breaker(probe_s=1.0, probe_s_max=3.0)))
    assert not breaker.may_probe(0.99)
    now, pauses = 1.0, []
    for _ in range(3):
        assert breaker.may_probe(now)
        breaker.begin_probe(PROBE)
        assert not breaker.may_probe(now + 100)
        breaker.check_invariants()
        breaker.probe_ended(False, now)
        pauses.append(breaker.probe_at - now)
        now = breaker.probe_at
    assert pauses == [2.0, 3.0, 3.0]
    breaker.begin_probe(PROBE)
    breaker.probe_ended(True, now)
    assert breaker.is_closed
    assert opened(breaker, now).probe_at == now + 1.0
    assert breaker.opened == 2


def test_a_probe_that_says_nothing_is_repeated_at_once() -> None:
    """Cancelled, filtered or of a lost partition: no evidence, so no longer pause either."""
    breaker = opened(StepBreaker(Breaker(probe_s=1.0)))
    breaker.begin_probe(PROBE)
    breaker.probe_ended(None, 5.0)
    assert breaker.may_probe(5.0)


def test_a_disabled_breaker_never_opens() -> None:
    """`Breaker(enabled=False)`."""
    breaker = StepBreaker(Breaker(enabled=False))
    breaker.observe(0, [f"key{index}" for index in range(1000)], "e", 0.0)
    assert breaker.is_closed
