"""The status line: what it says, and how it is drawn."""

from __future__ import annotations

import io
import sys

import pytest

from anabranch.cli.news import News
from anabranch.cli.status import PartitionStatus, Rate, Status, age_text, parse_status, status_line, summary_line
from anabranch.cli.status_line import LiveLine, PlainLines, fitted


def partition(number: int = 0, **known: object) -> PartitionStatus:
    values: dict[str, object] = {
        "topic": "orders",
        "partition": number,
        "committed": 10,
        "committable": 12,
        "high_watermark": 20,
        "true_lag": 8,
        "paused": False,
        "blocker": None,
        "blocker_age_s": 0.0,
        "blocker_timestamp_ms": None,
    }
    return PartitionStatus(**{**values, **known})  # type: ignore[arg-type]  # values by name


def status(**known: object) -> Status:
    values: dict[str, object] = {
        "group": "billing",
        "member": "m",
        "pid": "1",
        "state": "running",
        "handled": 100,
        "filtered": 5,
        "dead": 0,
        "retries": 3,
        "skipped": 0,
        "abandoned": 0,
        "running": 256,
        "waiting_keys": 2,
        "breakers_open": (),
        "partitions": (partition(),),
        "lost_to_retention": 0,
        "unreachable_s": 0.0,
        "unreachable_error": "",
        "why": (),
    }
    return Status(**{**values, **known})  # type: ignore[arg-type]  # values by name


class Terminal(io.StringIO):
    """A text stream that calls itself a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_line_tells_rate_work_waiting_lag_and_blocker() -> None:
    """What one looks for when a pipeline is slow, in one line."""
    held = partition(3, blocker=12, blocker_age_s=95.0, true_lag=1000)
    assert status_line(status(partitions=(partition(), held)), 1204.4) == (
        "billing: 1,204/s, 256 running, 2 keys waiting, lag 1,008, blocker orders/3@12 for 1 min 35 s"
    )


def test_the_line_tells_only_of_trouble_that_is_there() -> None:
    """A young blocker is work going on; an open breaker, a paused partition, dead letters are news."""
    assert status_line(status(partitions=(partition(blocker=12, blocker_age_s=0.5),)), 0) == (
        "billing: 0/s, 256 running, 2 keys waiting, lag 8"
    )
    troubled = status(dead=1, breakers_open=("charge",), partitions=(partition(paused=True),), waiting_keys=1)
    assert status_line(troubled, 0) == (
        "billing: 0/s, 256 running, 1 key waiting, lag 8, breaker of charge open, 1 partition paused, 1 dead letter"
    )
    assert status_line(status(unreachable_s=12.0), 0).endswith(", no broker answers for 12 s")
    assert status_line(status(lost_to_retention=1200), 0).endswith(", 1,200 lost to retention")
    assert status_line(status(partitions=()), 0).endswith("no partitions yet")
    assert status_line(status(state="stopping"), 0).endswith(", draining")
    assert status_line(status(state="stuck"), 0).endswith(", a handler blocks the event loop")


def test_on_spark_the_line_tells_of_members_and_queries() -> None:
    """How many of the members are there, and at the end, where a narrow terminal cuts, how far each query is."""
    told = {
        "members": {"0": {"state": "running"}, "1": {"state": "absent"}},
        "queries": {"receipts": {"rows": 1200, "lag": 3}, "totals": {"rows": 1, "lag": None}},
    }
    line = status_line(parse_status({"group": "billing", "state": "running", **told}), 0)
    assert "lag unknown, 1 of 2 members, " in line
    assert line.endswith(", query receipts 1,200 rows lag 3, query totals 1 row")
    told["members"] = {"0": {"state": "running"}}
    assert ", 1 member, " in status_line(parse_status({"group": "billing", "state": "running", **told}), 0)


def test_the_last_line_tells_how_it_ended_and_what_became_of_the_records() -> None:
    """Also what will be repeated, if anything."""
    assert summary_line(status(dead=1), 12.0, "done") == (
        "billing: done after 12 s: 106 records settled (100 handled, 5 filtered, 1 dead), 3 retries"
    )
    assert summary_line(status(abandoned=2, retries=1, skipped=7), 12.0, "stopped").endswith(
        ", 1 retry, 7 skipped that were settled before, 2 begun and left to be repeated"
    )


def test_a_partition_counts_as_paused_only_when_waiting_records_fill_the_bound() -> None:
    """A backlog fills the bound all the time: that is how memory stays bounded, and no trouble."""
    told = {"topic": "orders", "partition": 0, "gate": "closed", "held": 100, "waiting": 10}
    busy = parse_status({"partitions": {"orders/0": told}})
    stuck = parse_status({"partitions": {"orders/0": {**told, "waiting": 90}}})
    assert [busy.partitions[0].paused, stuck.partitions[0].paused] == [False, True]


def test_an_answer_of_a_process_that_is_still_starting_can_be_read() -> None:
    """Before the plane exists there are no partitions, steps or counters."""
    early = parse_status({"group": "billing", "pid": 7, "state": "starting", "partitions": {}, "steps": {}, "why": []})
    assert (early.group, early.pid, early.state, early.settled, early.true_lag) == ("billing", "7", "starting", 0, None)
    assert status_line(early, 0.0).endswith("lag unknown, starting")


def test_an_open_breaker_is_told_once_with_its_error_and_its_closing_too() -> None:
    """Who reads a log sees why nothing happens, without a second command."""
    news = News()
    troubled = status(breakers_open=("charge",), why=("the breaker of step 'charge' has been open: last error X",))
    assert news.of(troubled, 0.0) == ["billing: the breaker of step 'charge' has been open: last error X"]
    assert news.of(troubled, 60.0) == []
    assert news.of(status(), 61.0) == ["billing: the breaker of step 'charge' is closed again"]


def test_a_record_that_fails_and_fails_is_told_once_and_one_that_only_takes_long_is_not() -> None:
    """A thousand failing keys are told one every ten seconds, the oldest first."""
    news = News()

    def held(offset: int, sentence: str, age_s: float = 6.0) -> Status:
        return status(partitions=(partition(blocker=offset, blocker_age_s=age_s),), why=(sentence,))

    assert news.of(held(12, "orders/0 offset 12 (key 'a') runs its attempt 1"), 0.0) == []
    failing = held(12, "orders/0 offset 12 (key 'a') waits for a retry; last error X")
    assert news.of(held(12, failing.why[0], age_s=1.0), 1.0) == []
    assert news.of(failing, 2.0) == ["billing: orders/0 offset 12 (key 'a') waits for a retry; last error X"]
    assert news.of(failing, 50.0) == []
    assert news.of(held(13, "orders/0 offset 13 (key 'b'); last error X"), 11.0) == []
    assert len(news.of(held(13, "orders/0 offset 13 (key 'b'); last error X"), 51.0)) == 1


def test_the_rate_is_that_of_the_last_seconds() -> None:
    """A burst at the start does not colour the rate for ever."""
    rate = Rate(window_s=2.0)
    assert rate.observe(0, 10.0) == 0.0
    assert rate.observe(1000, 11.0) == 1000.0
    for second in range(12, 20):
        last = rate.observe(1000, float(second))
    assert last == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0.0 s"), (0.44, "0.4 s"), (9.99, "10.0 s"), (12.4, "12 s"), (59.9, "1 min"), (185, "3 min 5 s"),
        (3600, "1 h"), (7860, "2 h 11 min"), (86_400, "1 d"), (277_200, "3 d 5 h"),
    ],
)  # fmt: skip
def test_a_time_span_is_said_as_people_say_it(seconds: float, text: str) -> None:
    """Two units at most."""
    assert age_text(seconds) == text


def test_the_live_line_is_redrawn_in_place_at_most_four_times_a_second() -> None:
    """More cannot be read, and costs."""
    terminal = Terminal()
    line = LiveLine(terminal)
    for hundredth in range(100):
        line.show(f"tick {hundredth}", None, hundredth / 100)
    assert terminal.getvalue().count("\r\033[K") == 4
    assert "\n" not in terminal.getvalue()
    line.end()
    assert terminal.getvalue().endswith("\r\033[K")


def test_what_a_handler_prints_goes_above_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is taken away before the print and drawn again after it; half a line is left alone until it is whole."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    line = LiveLine(terminal)
    with line.above():
        line.show("status", None, -100.0)
        sys.stdout.write("hello")
        sys.stdout.write(" world\n")
    assert terminal.getvalue() == "\r\033[Kstatus" + "\r\033[Khello" + " world\n" + "\r\033[Kstatus"
    assert sys.stdout is terminal


def test_plain_lines_come_on_change_or_every_ten_seconds() -> None:
    """A log is no film; a run that stands still adds nothing to it."""
    stream = io.StringIO()
    lines = PlainLines(stream)
    lines.show("a", "running", 0.0)
    lines.show("b", "running", 5.0)
    lines.show("c", "paused", 6.0)
    lines.show("d", "running", 6.5)
    lines.show("e", "paused", 17.0)
    lines.show("e", "paused", 60.0)
    assert stream.getvalue().split() == ["a", "c", "e"]


def test_a_line_is_cut_to_the_terminal() -> None:
    """A line that wraps cannot be redrawn in place."""
    assert fitted("0123456789", 10) == "0123456789"
    assert fitted("0123456789", 8) == "01234..."
