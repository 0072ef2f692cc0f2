"""The suite's own checks, each turned red by the fault that it is there for."""

import random
from dataclasses import dataclass, field

import pytest
from torture_clients import check_producer, content
from torture_damage import StoredBatch
from torture_wire import batches_of

from anabranch.broker.wire.records import Record, build_batch

RECORDS = 10


@dataclass
class Book:
    """A producer that sent ten records to partition 0, all acknowledged."""

    name: str = "first"
    sent: dict[int, int] = field(default_factory=lambda: {0: RECORDS})
    acknowledged: dict[tuple[int, int], int] = field(default_factory=lambda: {(0, n): n for n in range(RECORDS)})
    errors: list[str] = field(default_factory=list)


def log_with(sequences: list[int]) -> dict[int, list[tuple[int, bytes]]]:
    return {0: [(offset, content("first", 0, sequence)) for offset, sequence in enumerate(sequences)]}


def test_a_good_log_passes() -> None:
    """Records of another producer in between are none of its business."""
    assert check_producer(Book(), log_with(list(range(RECORDS)))) == RECORDS


@pytest.mark.parametrize(
    ("sequences", "verdict"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], "LOST"),
        ([0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9], "DUPLICATES"),
        ([0, 2, 1, 3, 4, 5, 6, 7, 8, 9], "REORDERED"),
    ],
)
def test_a_log_that_is_not_what_was_acknowledged_is_red(sequences: list[int], verdict: str) -> None:
    """A lost, a repeated and a reordered record are each called by their name."""
    with pytest.raises(AssertionError, match=verdict):
        check_producer(Book(), log_with(sequences))


def test_a_record_that_is_not_where_its_acknowledgement_said_is_red() -> None:
    """An acknowledgement names an offset: the record must be there."""
    moved = {0: [(offset + 1, value) for offset, value in log_with(list(range(RECORDS)))[0]]}
    with pytest.raises(AssertionError, match="acknowledged at 0 and is at 1"):
        check_producer(Book(), moved)


def test_a_changed_record_is_red() -> None:
    """The value follows from the record's name, so a changed one is seen."""
    found = log_with(list(range(RECORDS)))
    offset, value = found[0][9]
    found[0][9] = (offset, value[:-1] + bytes([value[-1] ^ 1]))
    with pytest.raises(AssertionError, match="not what was sent"):
        check_producer(Book(), found)


def test_a_served_batch_with_a_bad_crc_is_red() -> None:
    """Every bit from the CRC on counts."""
    batch = build_batch([Record(timestamp=1, value=b"value")])
    assert len(batches_of(bytes(batch))) == 1
    chance = random.Random(1)
    for position in range(17, len(batch)):
        flipped = bytearray(batch)
        flipped[position] ^= 1 << chance.randrange(8)
        with pytest.raises(AssertionError, match="bad CRC"):
            batches_of(bytes(flipped))


def test_half_a_served_batch_is_red() -> None:
    """Fetches answer whole batches."""
    batch = bytes(build_batch([Record(timestamp=1, value=b"value")]))
    with pytest.raises(AssertionError, match="half a batch"):
        batches_of(batch + batch[:-1])


def test_damage_is_seen_wherever_a_crc_or_an_offset_could_see_it() -> None:
    """A batch counts as broken from its first to its last byte, but for the leader epoch."""
    data = bytes(build_batch([Record(timestamp=1, value=b"value")]))
    batch = StoredBatch(path=None, position=0, base_offset=0, data=data)  # type: ignore[arg-type] # no file is needed
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        assert batch.is_whole(bytes(flipped)) == (12 <= position < 16)
