"""Whatever the bytes are, reading them raises our protocol error or nothing, in bounded time and memory."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.broker.wire import compression
from anabranch.broker.wire.batch import check_batch, write_crc
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.records import Record, build_batch, iterate_records

texts = st.text(max_size=8)
payloads = st.none() | st.binary(max_size=40)
records = st.builds(
    Record,
    timestamp=st.integers(-1, 2**48),
    key=payloads,
    value=payloads,
    headers=st.lists(st.tuples(texts, payloads), max_size=3).map(tuple),
)
batches = st.builds(
    build_batch, st.lists(records, min_size=1, max_size=5), compression=st.sampled_from(compression.CODECS)
)


@given(st.lists(records, min_size=1, max_size=20), st.sampled_from(compression.CODECS), st.integers(0, 2**62))
def test_any_records_come_back(written: list[Record], codec: str, base_offset: int) -> None:
    """Build, check, read: the same records, numbered from the base offset."""
    batch = build_batch(written, base_offset=base_offset, compression=codec)
    header = check_batch(memoryview(batch))
    assert (header.size, header.record_count) == (len(batch), len(written))
    expected = [record._replace(offset=base_offset + number) for number, record in enumerate(written)]
    assert list(iterate_records(batch)) == expected


@given(st.binary(max_size=200))
def test_garbage_is_no_batch(data: bytes) -> None:
    """Random bytes never have the right CRC, and never raise anything else."""
    for read in (check_batch, lambda given: list(iterate_records(given))):
        with contextlib.suppress(WireError):
            read(data)


@settings(max_examples=300)
@given(batches, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
def test_damaged_batches_with_a_valid_crc_are_read_or_refused(
    batch: bytearray, changes: list[tuple[int, int]], cut: bool
) -> None:
    """A client can send anything under a valid CRC. Reading its records stays within our error and our bound."""
    for position, value in changes:
        batch[61 + position % (len(batch) - 61)] = value
    if cut:
        del batch[-1 - changes[0][0] % 20 :]
    if len(batch) < 61:
        return
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    write_crc(batch)
    check_batch(batch)
    with contextlib.suppress(WireError):
        for record in iterate_records(batch, uncompressed_bytes_max=100_000):
            assert len(record.value or b"") <= 100_000


@settings(max_examples=200)
@given(st.integers(1, 4), st.binary(max_size=300), st.binary(max_size=60))
def test_compressed_garbage_is_refused_within_the_bound(codec: int, data: bytes, tail: bytes) -> None:
    """Garbage, and good frames with garbage inside or behind, decompress to at most the bound or not at all."""
    packed = compression.compress(codec, data)
    for attempt in (data, packed + tail, packed[: len(packed) // 2] + tail, tail + packed):
        with contextlib.suppress(WireError):
            assert len(compression.decompress(codec, memoryview(attempt), bytes_max=10_000)) <= 10_000
