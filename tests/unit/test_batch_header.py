"""The header of a record batch: fields, checks and the two fields that a broker sets."""

import struct

import pytest

from anabranch.broker.wire.batch import (
    HEADER_BYTES,
    CorruptBatch,
    UnsupportedBatch,
    check_batch,
    patch,
    read_header,
    stamp_append_time,
    write_crc,
)
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.records import Record, build_batch, iterate_records

# One record, key "k", value "v", timestamp 1000, made by hand from the protocol's layout.
VECTOR = bytes.fromhex(
    "0000000000000000"  # base offset 0
    "0000003a"  # length 58
    "ffffffff"  # leader epoch -1
    "02"  # magic
    "00000000"  # CRC, filled in by the test
    "0000"  # attributes
    "00000000"  # last offset delta
    "00000000000003e8"  # base timestamp 1000
    "00000000000003e8"  # largest timestamp 1000
    "ffffffffffffffff"  # producer id
    "ffff"  # producer epoch
    "ffffffff"  # base sequence
    "00000001"  # one record
    "10"  # length 8
    "00"  # attributes
    "00"  # timestamp delta
    "00"  # offset delta
    "026b"  # key
    "0276"  # value
    "00"  # headers
)


def test_a_batch_is_built_as_the_protocol_writes_it() -> None:
    """Our bytes are those of a vector that was written by hand, CRC aside."""
    vector = bytearray(VECTOR)
    write_crc(vector)
    built = build_batch([Record(timestamp=1000, key=b"k", value=b"v")])
    assert built.hex() == vector.hex()
    assert [record[1:4] for record in iterate_records(vector)] == [(1000, b"k", b"v")]


def test_crc_32c_is_castagnoli() -> None:
    """The CRC of the nine digits is the check value that RFC 3720 names for this polynomial."""
    buffer = bytearray(21) + b"123456789"
    write_crc(buffer)
    assert struct.unpack_from(">I", buffer, 17)[0] == 0xE3069283


def test_header_fields_and_what_follows_from_them() -> None:
    """Every field is where the protocol has it."""
    batch = build_batch(
        [Record(timestamp=10), Record(timestamp=5), Record(timestamp=12)],
        base_offset=7,
        producer_id=3,
        producer_epoch=2,
        base_sequence=9,
        compression="zstd",
        leader_epoch=4,
        is_transactional=True,
        is_control=True,
    )
    header = read_header(batch)
    assert header[:4] == (7, len(batch) - 12, 4, 2)
    assert header[6:] == (2, 10, 12, 3, 2, 9, 3)
    assert (header.size, header.last_offset, header.next_offset) == (len(batch), 9, 10)
    assert (header.compression, header.timestamp_type) == ("zstd", "CreateTime")
    assert header.is_transactional
    assert header.is_control


def test_patching_offset_and_epoch_leaves_the_crc_valid() -> None:
    """Both are outside the CRC, so a broker sets them without touching the rest."""
    batch = build_batch([Record(value=b"x")])
    before = bytes(batch)
    patch(memoryview(batch), 123456789012, 7)
    header = check_batch(batch)
    assert (header.base_offset, header.leader_epoch) == (123456789012, 7)
    assert batch[16:] == before[16:]


def test_append_time_is_every_records_time() -> None:
    """LogAppendTime is in the header alone; records take it from there."""
    batch = build_batch([Record(timestamp=1), Record(timestamp=2)], compression="lz4")
    stamp_append_time(batch, read_header(batch).attributes, 99)
    header = check_batch(batch)
    assert (header.timestamp_type, header.max_timestamp, header.compression) == ("LogAppendTime", 99, "lz4")
    assert [record.timestamp for record in iterate_records(batch)] == [99, 99]


def test_a_batch_is_found_at_a_position_among_others() -> None:
    """Positions count from the start of the data; what follows a batch does not matter."""
    first, second = build_batch([Record(value=b"a")]), build_batch([Record(value=b"bb")], base_offset=1)
    data = memoryview(bytes(first + second + b"rest"))
    assert check_batch(data, len(first)).base_offset == 1


@pytest.mark.parametrize("position", range(12, HEADER_BYTES + 8))
def test_a_flipped_byte_is_noticed_unless_it_is_the_leader_epoch(position: int) -> None:
    """From the length on everything is checked, but bytes 12 to 15, which a broker may change."""
    batch = build_batch([Record(value=b"value")])
    batch[position] ^= 0x01
    if position < 16:
        check_batch(batch)
        return
    with pytest.raises((CorruptBatch, UnsupportedBatch)):
        check_batch(batch)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(magic: int) -> None:
    """Magic 0 and 1 have their own error code, so that a client knows what to change."""
    batch = build_batch([Record()])
    batch[16] = magic
    with pytest.raises(UnsupportedBatch) as refused:
        check_batch(batch)
    assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize(("count", "last"), [(-1, 0), (2, 0), (1, -1), (2**31 - 1, 5)])
def test_counts_that_cannot_be_are_corrupt(count: int, last: int) -> None:
    """More records than offsets, or negative ones, even under a valid CRC."""
    batch = build_batch([Record()])
    struct.pack_into(">i", batch, 23, last)
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch)
    with pytest.raises(CorruptBatch):
        check_batch(batch)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 60, 2**31 - 1])
def test_lengths_that_cannot_be_are_corrupt(length: int) -> None:
    """Shorter than a header, negative, or longer than the data."""
    batch = build_batch([Record()])
    assert length != len(batch) - 12
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch):
        check_batch(batch)
