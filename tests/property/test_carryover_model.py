"""Carryover beside a dumb set of offsets: round trips, degradation, and anything at all as input."""

import random
from itertools import groupby

from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.control.carryover import TEXT_CHARACTERS_MAX, Carryover, decode, encode
from anabranch.control.carryover_body import Damaged, pack, unpack
from anabranch.control.leader_epochs import LeaderEpochs, Run
from anabranch.core.records import Record

END = 2**63 - 1


@st.composite
def run_lists(draw: st.DrawFn) -> tuple[int, list[Run]]:
    """A committable position and rising runs above it, with leader epochs that rise now and then."""
    committable = draw(st.integers(0, 2**40))
    epoch = draw(st.integers(-1, 5))
    end = committable
    runs = []
    for gap, length, rise in draw(
        st.lists(st.tuples(st.integers(0, 200), st.integers(1, 300), st.sampled_from([0, 0, 0, 1])), max_size=60)
    ):
        epoch += rise
        if gap == 0 and runs and runs[-1].leader_epoch == epoch:
            continue
        runs.append(Run(end + gap, end + gap + length - 1, epoch))
        end += gap + length
    return committable, runs


def dumb(runs: list[Run]) -> set[tuple[int, int]]:
    return {(offset, run.leader_epoch) for run in runs for offset in range(run.first, run.last + 1)}


@given(run_lists(), st.text(max_size=22))
def test_what_fits_comes_back_exactly(case: tuple[int, list[Run]], topic_id: str) -> None:
    """The same offsets under the same epochs, and no others."""
    committable, runs = case
    text = encode(runs, committable=committable, topic_id=topic_id)
    assert text.isascii()
    assert len(text) <= TEXT_CHARACTERS_MAX
    carryover = decode(text + "\0", topic_id=topic_id, position=committable, log_start=0, log_end=END)
    assert dumb(carryover.runs) == dumb(runs)
    assert carryover.settled == len(dumb(runs))
    assert carryover.reason == ""


@given(run_lists(), st.integers(0, 2000))
def test_covering_is_membership(case: tuple[int, list[Run]], begin: int) -> None:
    """One by one and as a batch, a record is covered exactly if its offset and epoch are in the set."""
    committable, runs = case
    members = dumb(runs)
    carryover = Carryover(runs)
    records = [
        Record("t", 0, offset, None, None, leader_epoch=epoch)
        for offset, epoch in zip(range(committable + begin, committable + begin + 400), [0, 1, 2, 3] * 100, strict=True)
    ]
    covered = set(carryover.covered(records))
    for number, record in enumerate(records):
        expected = (record.offset, record.leader_epoch) in members
        assert carryover.covers(record.offset, record.leader_epoch) == expected
        assert (number in covered) == expected
    beyond = dumb(list(carryover.beyond(committable + begin)))
    assert beyond == {member for member in members if member[0] >= committable + begin}


@given(
    st.integers(0, 10_000),
    st.floats(0.02, 0.98),
    st.integers(1, 60_000),
    st.sampled_from([40, 200, 1000, 2950]),
)
@example(seed=1, density=0.5, count=60_000, budget=2950)
@example(seed=1, density=0.9, count=60_000, budget=2950)
@example(seed=1, density=0.05, count=60_000, budget=2950)
@settings(max_examples=40)
def test_too_much_to_carry_keeps_what_is_nearest(seed: int, density: float, count: int, budget: int) -> None:
    """Less is known than is true, never more, and what is known is a beginning: all settled up to some offset."""
    generator = random.Random(seed)
    bits = [False, *(generator.random() < density for _ in range(count)), True]
    steps = [len(list(group)) for _, group in groupby(bits)]
    body = pack(steps, budget)
    assert len(body) <= budget
    kept = offsets_of(unpack(body))
    settled = [offset for offset, bit in enumerate(bits) if bit]
    assert kept == settled[: len(kept)]
    assert len(kept) >= min(len(settled), sum(bits[: (budget - 1) * 8])), "at least what a plain bitset would know"


def offsets_of(steps: list[int]) -> list[int]:
    offsets: list[int] = []
    end = 0
    for gap, length in zip(steps[::2], steps[1::2], strict=True):
        offsets += range(end + gap, end + gap + length)
        end += gap + length
    return offsets


@given(st.one_of(st.text(), st.text().map("anabranch:1:".__add__), st.binary(max_size=300).map(bytes.hex)))
def test_any_text_is_taken_without_an_error(text: str) -> None:
    """Nothing that stands in a commit can stop a pipeline or make it skip a record."""
    assert not decode(text, topic_id="", position=0, log_start=0, log_end=END)


@given(st.integers(0, 4), st.binary(max_size=400))
@settings(max_examples=300)
def test_any_body_is_unpacked_or_damaged(form: int, data: bytes) -> None:
    """Steps that make sense, or one kind of error."""
    try:
        steps = unpack(bytes([form]) + data)
    except Damaged:
        return
    assert len(steps) % 2 == 0
    assert all(step >= 1 for step in steps[1:])


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0, 0, 0, 1, 3])), min_size=1, max_size=80),
    st.integers(1, 20),
    st.lists(st.booleans(), min_size=80, max_size=80),
)
def test_leader_epochs_are_those_of_the_records(steps: list[tuple[int, int]], size: int, settled: list[bool]) -> None:
    """Batches of any size; each settled record ends up in a run of its own epoch."""
    offset = 0
    epoch = -1
    records = []
    for gap, rise in steps:
        offset, epoch = offset + gap, epoch + rise
        records.append(Record("t", 0, offset, None, None, leader_epoch=epoch))
    epochs = LeaderEpochs()
    for start in range(0, len(records), size):
        epochs.arrived(records[start : start + size])
        epochs.check_invariants()
    assert [epochs.at(record.offset) for record in records] == [record.leader_epoch for record in records]
    ranges = []
    for taken, group in groupby(zip(records, settled, strict=False), key=lambda pair: pair[1]):
        if taken:
            members = [record for record, _ in group]
            ranges.append((members[0].offset, members[-1].offset))
    carryover = Carryover(epochs.split(ranges))
    for record, taken in zip(records, settled, strict=False):
        assert carryover.covers(record.offset, record.leader_epoch) == taken
    middle = records[len(records) // 2].offset
    epochs.forget(middle)
    epochs.check_invariants()
    assert [epochs.at(record.offset) for record in records if record.offset >= middle] == [
        record.leader_epoch for record in records if record.offset >= middle
    ]
