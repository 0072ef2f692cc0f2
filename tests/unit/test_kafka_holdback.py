"""What is held back of closed partitions: a model that keeps everything in one list."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from anabranch.control.effects import Room
from anabranch.control.events import Assigned, Fetched, Start
from anabranch.control.plane import Plane
from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.control.sizes import TASK_BYTES, record_sizes, total_size
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
        self.holdback.told(self.holdback.call, None)
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
        elif self.holdback.passing(found) is not None:
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
    holdback.told(1, None)
    holdback.close(NAMES[:1])
    for first in (0, 2, 4):
        assert holdback.passing(batch(NAMES[0], first, 2)) is None
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


def test_no_more_goes_out_than_there_is_room_for() -> None:
    """A batch is divided: what fits goes out, the rest when there is room again, behind it."""
    name = NAMES[0]
    holdback = Holdback(1000, 1_000_000)
    holdback.own([name])
    assert holdback.passing(batch(name, 0, 3)) is None, "nothing before control knows whose it is"
    holdback.told(1, {name: Room(5, 1_000_000)})
    holdback.call = 2
    assert [(len(each.records), each.position) for each in holdback.release(100)[0]] == [(3, 3)]
    holdback.call = 3
    passing = holdback.passing(batch(name, 3, 4))
    assert passing is not None
    assert [record.offset for record in passing.records] == [3, 4]
    assert (passing.position, passing.bytes) == (5, 20)
    assert not holdback.any_open
    holdback.told(2, {name: Room(2, 1_000_000)})  # the room of call 2 is used up by call 3
    assert not holdback.due
    holdback.told(3, {name: Room(1, 1_000_000)})
    assert [(len(each.records), each.position) for each in holdback.release(100)[0]] == [(1, 6)]
    holdback.told(4, {name: Room(9, 1_000_000)})
    assert [(len(each.records), each.position) for each in holdback.release(100)[0]] == [(1, 7)]
    holdback.check_invariants()


def test_one_record_may_pass_the_bound_of_bytes() -> None:
    """Else one that is larger than the bound would never go out; a second one waits."""
    name = NAMES[0]
    holdback = Holdback(1000, 1_000_000)
    holdback.own([name])
    holdback.told(1, {name: Room(100, 1)})
    holdback.call = 2
    passing = holdback.passing(batch(name, 0, 3))
    assert passing is not None
    assert len(passing.records) == 1
    holdback.told(2, {name: Room(100, 2 * (TASK_BYTES + 10))})
    assert [len(each.records) for each in holdback.release(100)[0]] == [2]


def test_a_word_about_an_earlier_ownership_does_not_count() -> None:
    """A partition went and came back: what control had room for before says nothing about what it has now."""
    name = NAMES[0]
    holdback = Holdback(1000, 1_000_000)
    holdback.own([name])
    holdback.call = 5
    holdback.own([name])  # told to control in call 5
    holdback.call = 6
    holdback.told(4, {name: Room(100, 1_000_000)})
    assert holdback.passing(batch(name, 0, 1)) is None
    holdback.told(5, {name: Room(100, 1_000_000)})
    assert holdback.due


def test_sizes_are_those_that_control_counts() -> None:
    """The two sides measure bytes alike: the sum, each record, and what an assignment holds."""
    records = [
        Record("t", 0, 0, None, None),
        Record("t", 0, 1, b"key", b"value"),
        Record("t", 0, 2, b"", b"", (("name", b"x"), ("null", None))),
    ]
    plane = Plane(PlanePolicy((StepPolicy("s"),)))
    plane.step(Assigned({NAMES[0]: Start(0)}), 0.0)
    plane.step(Fetched(NAMES[0], records, 3), 0.0)
    assert plane.statistics().bytes == total_size(records) == sum(record_sizes(records))
