"""Records inside batches, and their compression."""

import cramjam
import pytest

from anabranch.broker.wire import compression
from anabranch.broker.wire.batch import CorruptBatch, write_crc
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.records import Record, build_batch, iterate_records

RECORDS = [
    Record(timestamp=1000, key=None, value=None),
    Record(timestamp=999, key=b"", value=b"", headers=(("", None), ("é", b""))),
    Record(timestamp=2000, key=b"k" * 200, value=bytes(100_000), headers=(("trace", b"1"), ("trace", b"2"))),
]


@pytest.mark.parametrize("codec", compression.CODECS)
def test_records_come_back_as_they_went_in(codec: str) -> None:
    """Null and empty stay apart, headers keep order and repeats, timestamps may go back."""
    batch = build_batch(RECORDS, base_offset=40, compression=codec)
    found = list(iterate_records(memoryview(batch)))
    assert [record[1:] for record in found] == [record[1:] for record in RECORDS]
    assert [record.offset for record in found] == [40, 41, 42]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_refused_at_the_bound(codec: int) -> None:
    """A few kilobytes that claim to be many megabytes cost no more than the bound."""
    packed = compression.compress(codec, bytes(20_000_000))
    with pytest.raises(WireError):
        compression.decompress(codec, memoryview(packed), bytes_max=1_000_000)
    assert len(compression.decompress(codec, memoryview(packed), bytes_max=20_000_000)) == 20_000_000


def test_snappy_is_read_raw_and_in_blocks() -> None:
    """Java frames its blocks, some clients send one raw block."""
    data = b"anabranch" * 10_000
    assert compression.decompress(2, memoryview(compression.compress(2, data))) == data
    assert compression.decompress(2, memoryview(bytes(cramjam.snappy.compress_raw(data)))) == data


def test_several_gzip_members_and_lz4_frames_are_one_text() -> None:
    """Some clients write a batch in pieces."""
    for codec in (1, 3, 4):
        pieces = compression.compress(codec, b"a" * 100) + compression.compress(codec, b"b" * 100)
        assert compression.decompress(codec, memoryview(pieces)) == b"a" * 100 + b"b" * 100


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    """Three numbers are left that Kafka has not given out."""
    with pytest.raises(WireError):
        compression.decompress(codec, memoryview(b"x"))
    with pytest.raises(WireError):
        compression.compress(codec, b"x")


def test_codecs_are_called_by_their_names() -> None:
    """A wrong name is answered with the right ones."""
    assert compression.codec_number("zstd") == 4
    with pytest.raises(WireError, match="none, gzip, snappy, lz4, zstd"):
        compression.codec_number("brotli")


def test_a_batch_without_records_cannot_be_built() -> None:
    """A log has no place for it."""
    with pytest.raises(WireError):
        build_batch([])


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("", "no record where one was counted"),
        ("02", "ends after a length"),
        ("0e000000010100ff", "bytes after the last record"),
        ("10000000010100ff", "a record longer than its fields"),
        ("0e00000003610100", "a key longer than the record"),
        ("0e00000005010100", "a length of -3"),
        ("0e000000010101", "a negative count of headers"),
        ("0e0000000101fe", "more headers than bytes"),
        ("120000000101020100", "a header without a name"),
        ("1200000001010202ff01", "a header's name that is not UTF-8"),
        ("ffffffffffffffffffff01", "a number of more than 64 bits"),
    ],
)
def test_malformed_records_are_corrupt(body: str, what: str) -> None:
    """Whatever stands in a batch under a valid CRC, reading it raises CorruptBatch: here {what}."""
    batch = build_batch([Record()])[:61] + bytes.fromhex(body)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    write_crc(batch)
    with pytest.raises(CorruptBatch):
        list(iterate_records(batch))
