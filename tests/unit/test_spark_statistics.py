"""The statistics of members as one: counters survive restarts, the rest is of those who live."""

from __future__ import annotations

from typing import Any

from anabranch.spark.statistics import MemberAccounts, merged_values, of_nobody
from anabranch.spark.supervision import Term


def told(**changed: Any) -> dict[str, Any]:
    """What a member says, as far as it matters here."""
    step = {
        "name": "charge",
        "concurrency": 8,
        "running": 1,
        "ready_lanes": 0,
        "waiting_lanes": 2,
        "done": 10,
        "failed": 1,
        "retries": 1,
        "breaker": "closed",
        "breaker_opened": 0,
    }
    return {
        "state": "running",
        "handled": 10,
        "settled": 10,
        "retries": 1,
        "running": 1,
        "held": 3,
        "true_lag": 5,
        "partitions": {"orders/0": {"topic": "orders", "partition": 0, "true_lag": 5}},
        "steps": {"charge": step},
        "source": {"unreachable_s": 0.0, "lost_to_retention": {}, "commits": 2, "last_error": ""},
        "why": ["orders/0: nothing to commit"],
        **changed,
    }


def test_numbers_of_members_add_up() -> None:
    """Counters, gauges, steps and lag; partitions stand side by side."""
    accounts = MemberAccounts(2)
    accounts.started(0, Term(1, 0))
    accounts.started(1, Term(1, 0))
    accounts.told(0, Term(1, 0), told())
    accounts.told(1, Term(1, 0), told(partitions={"orders/1": {"true_lag": 7}}, true_lag=7, why=[]))
    merged = accounts.merged([0, 1])
    assert (merged["handled"], merged["running"], merged["held"], merged["true_lag"]) == (20, 2, 6, 12)
    assert sorted(merged["partitions"]) == ["orders/0", "orders/1"]
    assert merged["steps"]["charge"]["done"] == 20
    assert merged["steps"]["charge"]["waiting_lanes"] == 4
    assert merged["source"]["commits"] == 4


def test_a_member_that_starts_again_keeps_what_was_counted_and_drops_what_was() -> None:
    """Its counters go on from where they were; what it held and ran is no more."""
    accounts = MemberAccounts(1)
    accounts.started(0, Term(1, 0))
    accounts.told(0, Term(1, 0), told())
    accounts.started(0, Term(1, 1))
    merged = accounts.merged([0])
    assert (merged["handled"], merged["running"], merged["partitions"]) == (10, 0, {})
    accounts.told(0, Term(1, 1), told(handled=3, settled=3))
    merged = accounts.merged([0])
    assert (merged["handled"], merged["running"]) == (13, 1)
    assert merged["steps"]["charge"]["done"] == 20
    assert accounts.starts == [2]


def test_an_older_attempt_has_nothing_to_say_any_more() -> None:
    """A thawed zombie's report changes nothing."""
    accounts = MemberAccounts(1)
    accounts.started(0, Term(1, 0))
    accounts.started(0, Term(1, 1))
    accounts.told(0, Term(1, 0), told())
    assert accounts.merged([0])["handled"] == 0


def test_a_member_that_connects_again_is_counted_once() -> None:
    """Its connection broke, it did not die."""
    accounts = MemberAccounts(1)
    accounts.started(0, Term(1, 0))
    accounts.told(0, Term(1, 0), told())
    accounts.started(0, Term(1, 0))
    assert accounts.merged([0])["handled"] == 10
    assert accounts.starts == [1]


def test_who_is_gone_counts_but_does_not_run() -> None:
    """A place where nobody is has done something, and holds nothing."""
    accounts = MemberAccounts(2)
    accounts.started(0, Term(1, 0))
    accounts.told(0, Term(1, 0), told())
    merged = accounts.merged([1])
    assert (merged["handled"], merged["running"], merged["partitions"], merged["true_lag"]) == (10, 0, {}, None)


def test_the_worst_breaker_is_shown() -> None:
    """One member's open breaker is worth knowing."""
    accounts = MemberAccounts(2)
    for index, state in enumerate(("closed", "open")):
        accounts.started(index, Term(1, 0))
        steps = {"charge": {**told()["steps"]["charge"], "breaker": state}}
        accounts.told(index, Term(1, 0), told(steps=steps))
    assert accounts.merged([0, 1])["steps"]["charge"]["breaker"] == "open"


def test_a_member_without_partitions_is_no_reason_when_others_have_some() -> None:
    """Why is it not committing: what only says that there is nothing to say is left out."""
    accounts = MemberAccounts(2)
    for index, why in enumerate((["no partition is assigned to this process"], ["orders/0: held"])):
        accounts.started(index, Term(1, 0))
        accounts.told(index, Term(1, 0), told(why=why))
    assert accounts.merged([0, 1])["why"] == ["orders/0: held"]


def test_values_merge_by_their_kind() -> None:
    """Numbers add up, truth is any, the first text counts, the longest silence counts."""
    merged = merged_values(
        [
            {"unreachable_s": 3.0, "n": 1, "is": False, "text": "", "deep": {"n": 1}, "list": ["a"], "none": None},
            {"unreachable_s": 1.0, "n": 2, "is": True, "text": "x", "deep": {"n": 2, "m": 1}, "list": ["b"]},
        ]
    )
    assert merged == {
        "unreachable_s": 3.0,
        "n": 3,
        "is": True,
        "text": "x",
        "deep": {"n": 3, "m": 1},
        "list": ["a", "b"],
        "none": None,
    }


def test_a_run_without_members_has_the_same_shape() -> None:
    """Whoever reads statistics finds every name from the first moment on."""
    accounts = MemberAccounts(1)
    accounts.started(0, Term(1, 0))
    accounts.told(0, Term(1, 0), told())
    assert accounts.merged([0]).keys() <= of_nobody({}, "billing").keys()
