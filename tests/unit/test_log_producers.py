"""Idempotent producers: which batch is next, which is a repetition, which is neither."""

import pytest

from anabranch.broker.log.epochs import EpochStart, LeaderEpochs
from anabranch.broker.log.errors import BatchRefused
from anabranch.broker.log.producers import EXPECTED_MAX, SEQUENCE_MASK, Producers
from anabranch.broker.log.snapshot import decode_snapshot, encode_snapshot
from anabranch.broker.wire.batch import BatchHeader, read_header
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.records import Record, build_batch


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 1) -> BatchHeader:
    return read_header(
        build_batch([Record()] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    )


def filled(batches: int, *, first: int = 0, count: int = 2) -> Producers:
    producers = Producers()
    for number in range(batches):
        sequence = (first + number * count) & SEQUENCE_MASK
        assert producers.check(header(sequence, count)) is None
        producers.record(header(sequence, count), 10 * number, 5, now_ms=0)
    return producers


def code(producers: Producers, sent: BatchHeader) -> ErrorCode:
    with pytest.raises(BatchRefused) as refused:
        producers.check(sent)
    return refused.value.code


def test_an_unknown_producer_may_start_anywhere() -> None:
    """Its entry may have expired, or its records may have been removed."""
    assert Producers().check(header(4711)) is None


def test_each_of_the_last_five_is_recognised_with_its_offsets() -> None:
    """A client has at most five in flight and may repeat any of them after a lost answer."""
    producers = filled(7)
    for number in range(2, 7):
        known = producers.check(header(number * 2, 2))
        assert known is not None
        assert (known.base_offset, known.last_offset) == (10 * number, 10 * number + 1)


def test_below_the_five_it_is_a_duplicate_without_offsets() -> None:
    """Clients take DUPLICATE_SEQUENCE_NUMBER as written."""
    producers = filled(7)
    assert code(producers, header(2, 2)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert code(producers, header(0, 1)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@pytest.mark.parametrize(("sequence", "count"), [(15, 1), (16, 2), (12, 1), (12, 3), (13, 1), (11, 2)])
def test_gaps_and_overlaps_are_out_of_order(sequence: int, count: int) -> None:
    """Neither the next one nor exactly one that is known."""
    assert code(filled(7), header(sequence, count)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero() -> None:
    """A producer that was replaced may not write any more."""
    producers = filled(2)
    assert code(producers, header(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(0, epoch=1)) is None
    producers.record(header(0, epoch=1), 50, 5, now_ms=0)
    assert code(producers, header(4, 2, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.check(header(1, epoch=1)) is None


def test_sequences_wrap_to_zero() -> None:
    """After 2³¹-1 comes 0, also within a batch, and repetitions are known across the wrap."""
    producers = filled(3, first=SEQUENCE_MASK - 2, count=2)
    assert producers.by_id[1].batches[1][:2] == (SEQUENCE_MASK, 0)
    assert producers.check(header(3)) is None
    known = producers.check(header(SEQUENCE_MASK, 2))
    assert known is not None
    assert known.base_offset == 10
    many = filled(6, first=SEQUENCE_MASK - 2, count=2)
    assert code(many, header(SEQUENCE_MASK - 2, 2)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert code(producers, header(9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_silent_producers_expire() -> None:
    """A day after their last batch."""
    producers = filled(1)
    assert producers.expire(24 * 3600 * 1000) == 0
    assert producers.expire(24 * 3600 * 1000 + 1) == 1
    assert producers.check(header(99)) is None


def test_the_number_of_producers_is_bounded() -> None:
    """At the bound the longest unused tenth is forgotten."""
    producers = Producers(entries_max=20)
    for number in range(25):
        producers.record(header(0, producer=number), 0, 0, now_ms=number)
    assert len(producers) <= 20
    assert set(producers.by_id) >= set(range(10, 25))


def test_a_snapshot_gives_back_what_was_stored() -> None:
    """Producers and epochs survive; a damaged file is as good as none."""
    data = encode_snapshot(30, filled(7), LeaderEpochs([EpochStart(2, 0), EpochStart(5, 17)]))
    state = decode_snapshot(data, "x.snapshot")
    assert state is not None
    offset, producers, epochs = state
    assert offset == 30
    assert producers.check(header(14, 2)) is None
    assert producers.check(header(12, 2)) is not None
    assert epochs.snapshot() == [(2, 0), (5, 17)]
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        assert decode_snapshot(bytes(damaged), "x.snapshot") is None


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(0, (0, 10)), (1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (4, (4, 25)), (6, (4, 25)), (7, (7, 25)), (8, (-1, -1))],
)
def test_an_epoch_ends_where_a_later_one_begins(asked: int, answer: tuple[int, int]) -> None:
    """As KIP-320 wants it; the leader's own epoch (7 here) counts before it has written anything."""
    epochs = LeaderEpochs()
    for epoch, offset in [(2, 10), (2, 15), (4, 20), (3, 22)]:
        epochs.observe(epoch, offset)
    assert epochs.end_offset(asked, 7, 25) == answer
    assert epochs.end_offset(-1, 7, 25) == (-1, -1)


def test_after_a_failed_write_only_the_refused_batch_may_open_the_sequence() -> None:
    """An acknowledgement that was a lie: batch 0 met a full disk, batch 1 behind it was taken as a start in the middle,
    and the repeat of batch 0 was answered as a duplicate, which clients report as delivered."""
    producers = Producers()
    producers.expect(header(0))
    assert code(producers, header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(0)) is None
    producers.record(header(0), 0, 5, now_ms=0)
    assert producers.check(header(1)) is None


def test_below_a_start_in_the_middle_nothing_is_a_duplicate() -> None:
    """With fewer than five batches known none was forgotten: a lower sequence was never written here."""
    producers = filled(2, first=10)
    assert code(producers, header(8, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_expectations_are_bounded() -> None:
    """A client that asks for producer ids on a full disk cannot grow the broker."""
    producers = Producers()
    for producer in range(EXPECTED_MAX + 5):
        producers.expect(header(0, producer=producer))
    assert len(producers.expected) == EXPECTED_MAX
