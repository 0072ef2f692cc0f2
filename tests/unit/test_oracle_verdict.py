"""The verdict: its one line, which scripts read, and its report, which people read."""

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.core.history import Begun, Committed, Ended, Event, Sent, Settled
from anabranch.testing.history import History, HistoryWriter, MemoryHistory, read_history
from anabranch.testing.oracle import Verdict, judge
from anabranch.testing.oracle.finding import EVENTS_AFTER_MAX, EVENTS_BEFORE_MAX


def judged(
    events: list[Event], records: int | None = None, duplicates_max: int | None = None, *, count_dead: bool = False
) -> Verdict:
    part = MemoryHistory("worker", pid=42)
    for now_ms, event in enumerate(events):
        part.now_ns = now_ms * 1_000_000
        part.record([event])
    return judge(History([part]), records=records, duplicates_max=duplicates_max, count_dead=count_dead)


def ran(offset: int, key: bytes = b"alice") -> list[Event]:
    return [
        Sent("orders", 0, offset, key),
        Begun("worker", 1, "orders", 0, offset, key, "charge"),
        Ended("worker", 1, "orders", 0, offset, key, "charge"),
        Settled("worker", 1, "orders", 0, offset),
    ]


def test_the_line_of_a_good_run_is_exactly_this() -> None:
    """Acceptance tests compare the whole line."""
    assert judged([*ran(0), *ran(1)]).line() == "verdict: ok records=2 lost=0 reordered=0 duplicates=0"


def test_the_line_of_a_bad_run_names_the_first_broken_rule_and_the_other_counts() -> None:
    """`first` is the earliest in the history; what is lost is known at its end only."""
    events = [*ran(0), Sent("orders", 0, 1, b"bob"), Committed("worker", "billing", "orders", 0, 2), *ran(2)]
    expected = "verdict: FAILED records=3 lost=1 reordered=0 duplicates=0 first=committed_too_far committed_too_far=1"
    assert judged(events).line() == expected


def test_duplicates_fail_only_above_a_limit_that_was_set() -> None:
    """Repeats are honest unless the caller promised that there are fewer."""
    events = [*ran(0), Settled("worker", 2, "orders", 0, 0)]
    assert judged(events).line() == "verdict: ok records=1 lost=0 reordered=0 duplicates=1"
    assert judged(events, duplicates_max=1).ok
    line = judged(events, duplicates_max=0).line()
    assert line == "verdict: FAILED records=1 lost=0 reordered=0 duplicates=1 first=duplicated"


def test_dead_letters_are_told_when_there_are_some_or_when_asked_for() -> None:
    """A run without dead letters has the short line."""
    events = [*ran(0), Sent("orders", 0, 1, b"bob"), Settled("worker", 1, "orders", 0, 1, "dead")]
    assert judged(events).line() == "verdict: ok records=2 lost=0 reordered=0 duplicates=0 dead=1"
    assert judged(ran(0), count_dead=True).line() == "verdict: ok records=1 lost=0 reordered=0 duplicates=0 dead=0"


def test_too_few_records_fail_so_that_an_empty_history_is_not_a_good_one() -> None:
    """Whoever knows how many records there must be can say so."""
    verdict = judged(ran(0), records=3)
    assert verdict.line() == "verdict: FAILED records=1 lost=0 reordered=0 duplicates=0 first=missing missing=2"
    assert "1 records were acknowledged and 3 were to be" in verdict.report()
    assert judged(ran(0), records=1).ok


def test_the_report_tells_who_what_and_when_with_the_events_around() -> None:
    """A person can follow the first violation without any other tool."""
    report = judged([*ran(0), *ran(1), Begun("worker", 1, "orders", 0, 0, b"alice", "charge", 2)]).report()
    told = "worker (pid 42, epoch 1) began offset 0 in step 'charge' after offset 1 in the same epoch"
    call = "key=b'alice' step=charge attempt=1"
    assert report.splitlines() == [
        f"reordered: 1, first: orders/0 key b'alice': {told}",
        "      +0.003000 s worker (pid 42) settled orders/0 epoch=1 offset=0 how=handled",
        "      +0.004000 s worker (pid 42) sent orders/0 offset=1 key=b'alice'",
        f"      +0.005000 s worker (pid 42) begun orders/0 epoch=1 offset=1 {call}",
        f"      +0.006000 s worker (pid 42) ended orders/0 epoch=1 offset=1 {call} outcome=done",
        "      +0.007000 s worker (pid 42) settled orders/0 epoch=1 offset=1 how=handled",
        "  >>> +0.008000 s worker (pid 42) begun orders/0 epoch=1 offset=0 key=b'alice' step=charge attempt=2",
        "verdict: FAILED records=2 lost=0 reordered=1 duplicates=0 first=reordered",
    ]


def test_the_report_of_a_very_bad_run_is_short() -> None:
    """Thousands of violations and a long key print no more than a screenful."""
    key = b"x" * 10_000
    events: list[Event] = [Sent("orders", 0, offset, key) for offset in range(1000)]
    events.extend(Begun("worker", 1, "orders", 0, offset, key, "charge") for offset in reversed(range(1000)))
    verdict = judged(events)
    assert verdict["reordered"].count >= 999
    assert verdict["lost"].count == 1000
    lines = verdict.report().splitlines()
    assert len(lines) <= len(verdict.findings) * (EVENTS_BEFORE_MAX + EVENTS_AFTER_MAX + 1) + 1
    assert max(map(len, lines)) < 300


def test_a_torn_file_is_told_in_the_report_and_fails_nothing(tmp_path: Path) -> None:
    """A killed process is an ordinary event."""
    with HistoryWriter(tmp_path, "worker") as writer:
        writer.record(ran(0))
        writer.record(ran(1))
    writer.path.write_bytes(writer.path.read_bytes()[:-1])
    verdict = judge(read_history(tmp_path))
    assert verdict.ok
    assert verdict.torn == 1
    assert "1 files end in a torn frame" in verdict.report()


def test_a_verdict_cannot_be_changed() -> None:
    """Results are values."""
    verdict = judged(ran(0))
    with pytest.raises(AttributeError):
        verdict.records = 7  # type: ignore[misc]  # the point of the test
    assert replace(verdict, records=7) != verdict
