"""The headers of dead letters stay small, whatever the cause is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.effects import DeadLetter
from anabranch.core.records import Record
from anabranch.core.work import Task
from anabranch.kafka.letters import HEADERS_BYTES_MAX, letter

OWN = (("mine", b"1"),)


@given(message=st.text(max_size=20_000), step=st.text(max_size=2000), group=st.text(max_size=2000))
def test_our_headers_stay_within_their_room_and_are_whole_characters(message: str, step: str, group: str) -> None:
    """At most 8 KiB with their names, always valid UTF-8; the record's own headers stand before them."""
    task = Task(Record("t", 5, 9, b"k", None, OWN, 77), None, 1, 0, 0)
    made = letter(DeadLetter(task, ValueError(message), step), group, "dead", 3)
    assert made.headers[:1] == list(OWN)
    ours = made.headers[1:]
    assert sum(len(name.encode()) + len(value or b"") for name, value in ours) <= HEADERS_BYTES_MAX
    assert all((value or b"").decode() is not None for _, value in ours)
    assert (made.topic, made.partition, made.key, made.value, made.timestamp_ms) == ("dead", 2, b"k", None, 77)
