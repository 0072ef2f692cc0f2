"""What is held back of closed partitions: a model that keeps everything in one list."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from anabranch.core.records import Record
from anabranch.core.work import TopicPartition
from anabranch.kafka.holdback import Batch, Holdback

NAMES = [TopicPartition("t", number) for number in range(3)]
NAME = st.sampled_from(NAMES)
RECORDS_MAX, BYTES_MAX = 12, 1200


def batch(name: TopicPartition, first: int, count: int, position: int | None = None) -> Batch:
    records = [Record(*name, first + number, None, b"x" * 10) for number in range(count)]
    return Batch(name, records, position or first + count, 10 * count)


class HoldbackModel(RuleBasedStateMachine):
    """Records of a partition go out in order, once each, whatever gates do; the library is stopped for a reason."""

    def __init__(self) -> None:
        super().__init__()
        self.holdback = Holdback(RECORDS_MAX, BYTES_MAX)
        self.fetched: dict[TopicPartition, int] = {}
        self.out: dict[TopicPartition, int] = {}
        self.closed: set[TopicPartition] = set()
        self.stopped: set[TopicPartition] = set()

    @rule(name=NAME)
    def own(self, name: TopicPartition) -> None:
        self.holdback.own([name])
        self.fetched[name] = self.out[name] = 0
        self.closed.discard(name)
        self.stopped.discard(name)

    @rule(name=NAME)
    def disown(self, name: TopicPartition) -> None:
        self.holdback.disown([name])
        self.fetched.pop(name, None)
        self.closed.discard(name)
        self.stopped.discard(name)

    @rule(name=NAME)
    def close(self, name: TopicPartition) -> None:
        self.holdback.close([name])
        if name in self.fetched:
            self.closed.add(name)

    @rule(name=NAME)
    def open(self, name: TopicPartition) -> None:
        self._resumed(self.holdback.open([name]))
        self.closed.discard(name)

    @rule(name=NAME, count=st.integers(0, 5), busy=st.booleans())
    def fetch(self, name: TopicPartition, count: int, busy: bool) -> None:
        if name not in self.fetched or name in self.stopped:
            return
        found = batch(name, self.fetched[name], count)
        self.fetched[name] += count
        if busy:
            self.holdback.keep(found)
        elif self.holdback.passes(found):
            assert name not in self.closed
            self._went_out(found)
        for stopped in self.holdback.overfull():
            assert stopped not in self.stopped
            self.stopped.add(stopped)

    @rule(room=st.integers(1, 8))
    def release(self, room: int) -> None:
        released, resumed = self.holdback.release(room)
        for each in released:
            assert each.partition not in self.closed
            self._went_out(each)
        self._resumed(resumed)

    def _went_out(self, each: Batch) -> None:
        offsets = [record.offset for record in each.records]
        assert offsets == list(range(self.out[each.partition], each.position))
        self.out[each.partition] = each.position

    def _resumed(self, names: list[TopicPartition]) -> None:
        for name in names:
            assert self.out[name] == self.fetched[name]
            self.stopped.remove(name)

    @invariant()
    def it_keeps_what_did_not_go_out(self) -> None:
        self.holdback.check_invariants()
        assert set(self.holdback.stopped()) == self.stopped
        assert self.holdback.any_open == any(name not in self.closed for name in self.fetched)
        kept = sum(self.fetched[name] - self.out[name] for name in self.fetched)
        assert self.holdback.statistics()["held_records"] == kept
        assert kept < RECORDS_MAX + 5 * len(NAMES)


TestHoldbackModel = pytest.mark.filterwarnings("error")(HoldbackModel.TestCase)
TestHoldbackModel.settings = settings(max_examples=60, stateful_step_count=40)


def test_everything_that_waits_goes_out_when_gates_open() -> None:
    """Kept batches become one, and the library is resumed when nothing is left."""
    holdback = Holdback(4, 1000)
    holdback.own(NAMES[:1])
    holdback.close(NAMES[:1])
    for first in (0, 2, 4):
        assert not holdback.passes(batch(NAMES[0], first, 2))
    assert holdback.overfull() == NAMES[:1]
    assert holdback.open(NAMES[:1]) == []
    assert holdback.due
    released, resumed = holdback.release(100)
    assert [(len(each.records), each.position) for each in released] == [(6, 6)]
    assert resumed == NAMES[:1]
    assert not holdback.due


def test_large_records_stop_the_library_by_their_bytes() -> None:
    """The limit is in bytes as well as in records."""
    holdback = Holdback(1000, 25)
    holdback.own(NAMES[:1])
    holdback.close(NAMES[:1])
    holdback.keep(batch(NAMES[0], 0, 2))
    assert holdback.overfull() == []
    holdback.keep(batch(NAMES[0], 2, 1))
    assert holdback.overfull() == NAMES[:1]
