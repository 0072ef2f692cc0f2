"""Where reading begins: the decision, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.errors import UsageError
from anabranch.core.work import TopicPartition
from anabranch.kafka.offsets import Found, Note, Rule, note_for, parse_rule, read_note, resolve
from anabranch.kafka.settings import SourceSettings

NAME = TopicPartition("orders", 2)
SETTINGS = SourceSettings("nowhere:1")
LOG = Found("id", 10, 100, partitions=4)
EARLIEST, LATEST = Rule("earliest"), Rule("latest")


@pytest.mark.parametrize(
    ("rule", "found", "position"),
    [
        (EARLIEST, LOG, 10),
        (LATEST, LOG, 100),
        (Rule("time", 1), replace(LOG, at_time=55), 55),
        (Rule("time", 1), LOG, 100),
        (Rule("offsets", offsets={NAME: 70}), LOG, 70),
        (Rule("offsets", offsets={}), LOG, 10),
    ],
)
def test_without_a_commit_the_rule_decides_and_is_stored(rule: Rule, found: Found, position: int) -> None:
    """A first start is always committed before a record runs."""
    resolution = resolve(rule, NAME, found, SETTINGS)
    assert (resolution.position, resolution.commit_first, resolution.refusal) == (position, True, None)


@pytest.mark.parametrize(
    ("found", "position"),
    [
        (replace(LOG, group_started=True), 10),
        (replace(LOG, group_started=True, partitions_at_start=2), 10),
        (replace(LOG, group_started=True, partitions_at_start=3), 100),
    ],
)
def test_latest_holds_only_for_partitions_that_were_there_at_the_start(found: Found, position: int) -> None:
    """KIP-842: in a group that has started, a partition without a commit is new unless a note says otherwise."""
    assert resolve(LATEST, NAME, found, SETTINGS).position == position


@pytest.mark.parametrize("rule", [EARLIEST, LATEST, Rule("time", 1), Rule("offsets", offsets={NAME: 99})])
def test_a_commit_wins(rule: Rule) -> None:
    """Whatever the rule is, and with its metadata."""
    resolution = resolve(rule, NAME, replace(LOG, committed=42, metadata="carried"), SETTINGS)
    assert (resolution.position, resolution.metadata, resolution.commit_first) == (42, "carried", False)


def test_below_the_log_the_loss_is_counted() -> None:
    """Retention passed the commit; its metadata may still tell of what is settled above."""
    found = replace(LOG, committed=4, metadata="carried")
    resolution = resolve(EARLIEST, NAME, found, SETTINGS)
    assert (resolution.position, resolution.lost, resolution.metadata) == (10, 6, "carried")
    assert resolution.notice
    halting = replace(SETTINGS, on_lost_to_retention="halt")
    assert "on_lost_to_retention" in str(resolve(EARLIEST, NAME, found, halting).refusal)


def test_beyond_the_log_it_halts_unless_told_otherwise() -> None:
    """The metadata is not believed then."""
    found = replace(LOG, committed=101, metadata="carried")
    assert "on_beyond_end" in str(resolve(EARLIEST, NAME, found, SETTINGS).refusal)
    moved = resolve(EARLIEST, NAME, found, replace(SETTINGS, on_beyond_end="log_start"))
    assert (moved.position, moved.metadata, moved.commit_first) == (10, "", True)
    assert resolve(EARLIEST, NAME, found, replace(SETTINGS, on_beyond_end="log_end")).position == 100
    assert resolve(EARLIEST, NAME, replace(found, committed=100), SETTINGS).refusal is None


def test_another_topic_of_the_same_name_begins_at_its_start() -> None:
    """Old progress says nothing about new records; where an id is not known the commit is believed."""
    found = replace(LOG, committed=42, metadata="carried", committed_topic_id="older")
    resolution = resolve(LATEST, NAME, found, SETTINGS)
    assert (resolution.position, resolution.metadata, resolution.commit_first) == (10, "", True)
    assert resolve(LATEST, NAME, replace(found, topic_id=""), SETTINGS).position == 42


@given(
    position=st.integers(0, 200),
    log=st.tuples(st.integers(0, 150), st.integers(0, 150)),
    on_beyond_end=st.sampled_from(["halt", "log_start", "log_end"]),
)
def test_a_position_is_in_the_log_or_refused(position: int, log: tuple[int, int], on_beyond_end: Any) -> None:
    """C10: never below log_start, never beyond log_end, and a record that exists above the commit is never skipped."""
    found = Found("id", min(log), max(log), committed=position)
    resolution = resolve(EARLIEST, NAME, found, replace(SETTINGS, on_beyond_end=on_beyond_end))
    if resolution.refusal is None:
        assert found.log_start <= resolution.position <= found.log_end
        assert resolution.position <= max(position, found.log_start)
        assert resolution.lost == max(0, found.log_start - position)


@given(partitions=st.integers(0, 10**6), topic_id=st.text("ABCxyz019+/=-_", max_size=24))
def test_a_note_comes_back(partitions: int, topic_id: str) -> None:
    """What is written is read; anything else is no note."""
    note = Note(partitions, topic_id)
    assert read_note(str(note)) == note
    assert read_note(str(note) + " ") is None
    assert read_note(f"anabranch:1:{note}") is None


def test_notes_remember_how_many_partitions_there_were_at_first() -> None:
    """The number is that of the group's first start, not today's."""
    assert note_for(LOG) == Note(4, "id")
    assert note_for(replace(LOG, group_started=True, partitions_at_start=3)) == Note(3, "id")
    assert note_for(replace(LOG, group_started=True)) == Note(0, "id")


@pytest.mark.parametrize(
    ("start", "rule"),
    [
        ("committed", EARLIEST),
        ("earliest", EARLIEST),
        ("latest", LATEST),
        (1.5, Rule("time", 1500)),
        (datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), Rule("time", 2000)),
        ({("orders", 2): 7}, Rule("offsets", offsets={NAME: 7})),
    ],
)
def test_a_start_is_read(start: Any, rule: Rule) -> None:
    """All forms that `read(start=…)` may have."""
    assert parse_rule(start) == rule


@pytest.mark.parametrize("start", ["newest", -1, None, True, {"orders": 1}, {("orders", 2): -1}, {("orders", 2): "1"}])
def test_a_start_that_cannot_be_is_refused_with_what_can(start: Any) -> None:
    """The sentence says what is allowed."""
    with pytest.raises(UsageError, match="allowed is"):
        parse_rule(start)
