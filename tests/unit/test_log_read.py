"""Reading whole batches by offset, and offsets by time."""

import pytest

from anabranch.broker.log.admission import Origin
from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.errors import OffsetOutOfRange
from anabranch.broker.log.index import IndexCache
from anabranch.broker.log.partition import PartitionLog
from anabranch.broker.wire.batch import read_header, write_crc
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.records import Record, build_batch
from anabranch.testing.memory_store import MemoryStore


def open_log(store: MemoryStore | None = None, cache: IndexCache | None = None, **config: int | bool) -> PartitionLog:
    settings = LogConfig(**config)  # type: ignore[arg-type] # one helper for settings of every type
    return PartitionLog.open(store or MemoryStore(), "t/0", settings, leader_epoch=0, now_ms=0, index_cache=cache)


def append(log: PartitionLog, *timestamps: int, size: int = 10, codec: str = "none") -> int:
    batch = build_batch([Record(timestamp=stamp, value=bytes(size)) for stamp in timestamps], compression=codec)
    log.append(batch, origin=Origin.CLIENT, now_ms=0)
    return len(batch)


def bases(data: bytes | memoryview) -> list[int]:
    found = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        found.append(header.base_offset)
        position += header.size
    assert position == len(data), "whole batches only"
    return found


def test_a_fetch_inside_a_batch_gives_the_whole_batch() -> None:
    """Clients drop the records before the offset that they asked for."""
    log = open_log()
    append(log, 1, 2, 3)
    append(log, 4, 5)
    assert bases(log.read(2, 1000, limit=5, at_least_one=True)) == [0, 3]
    assert bases(log.read(4, 1000, limit=5, at_least_one=True)) == [3]


@pytest.mark.parametrize("interval", [0, 150, 4096])
def test_the_byte_limit_ends_a_read_between_batches(interval: int) -> None:
    """As many whole batches as fit, wherever the index has its rows."""
    log = open_log(index_interval_bytes=interval)
    size = max(append(log, 1) for _ in range(200))
    for start in (0, 1, 57, 199):
        for count in (1, 2, 99):
            for extra in (0, 1, size - 1):
                data = log.read(start, size * count + extra, limit=200, at_least_one=False)
                assert bases(data) == list(range(start, min(200, start + count)))


def test_one_batch_larger_than_the_limit_is_given_only_if_asked_for() -> None:
    """The first partition of a fetch gives at least one batch, or a consumer would be stuck before a large one."""
    log = open_log()
    size = append(log, 1, size=100_000)
    append(log, 2)
    assert log.read(0, size - 1, limit=2, at_least_one=False) == b""
    assert bases(log.read(0, 0, limit=2, at_least_one=True)) == [0]
    assert bases(log.read(0, size, limit=2, at_least_one=False)) == [0]


def test_nothing_at_or_above_the_limit_is_given() -> None:
    """The limit is an offset such as the high watermark; batches lie wholly below it."""
    log = open_log(segment_bytes=300)
    for _ in range(6):
        append(log, 1, 2)
    for limit in range(0, 13, 2):
        found = []
        offset = 0
        while data := log.read(offset, 10_000, limit=limit, at_least_one=True):
            found += bases(data)
            offset = found[-1] + 2
        assert found == list(range(0, limit, 2))


def test_offsets_outside_the_log_are_out_of_range() -> None:
    """Below log_start and above log_end; log_end itself is the place where the next record will be."""
    log = open_log()
    append(log, 1, 2, 3)
    append(log, 4)
    log.delete_records(1)
    assert log.read(4, 100, limit=4, at_least_one=True) == b""
    assert bases(log.read(1, 100, limit=3, at_least_one=True)) == [0]
    for offset in (-1, 0, 5):
        with pytest.raises(OffsetOutOfRange) as refused:
            log.read(offset, 100, limit=4, at_least_one=True)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_indexes_of_sealed_segments_are_kept_within_a_bound() -> None:
    """They are read from their files when needed, and forgotten in the order of use."""
    store = MemoryStore()
    log = open_log(store, segment_bytes=1000, index_interval_bytes=0)
    for _ in range(100):
        append(log, 1)
    log.close(clean=True)
    cache = IndexCache(bytes_max=400)
    log = open_log(store, cache, segment_bytes=1000, index_interval_bytes=0)
    assert cache.bytes == 0
    for offset in [*range(100), *range(0, 100, 7)]:
        assert bases(log.read(offset, 0, limit=100, at_least_one=True)) == [offset]
        assert cache.bytes <= 400
    assert cache.bytes > 0


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_offsets_by_time_are_those_of_records(codec: str) -> None:
    """The first record at or after a time, also within a batch, also when times go back and forth."""
    log = open_log(segment_bytes=300, index_interval_bytes=0)
    for stamps in [(10, 30, 20), (5,), (40, 25), (35, 60), (50,)]:
        append(log, *stamps, codec=codec)
    times = [10, 30, 20, 5, 40, 25, 35, 60, 50]
    for wanted in range(62):
        expected = next(((time, offset) for offset, time in enumerate(times) if time >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected
    assert log.max_timestamp() == (60, 7)
    log.delete_records(2)
    assert log.offset_for_timestamp(5) == (20, 2)


def test_offsets_by_time_stop_at_the_high_watermark() -> None:
    """What is not acknowledged is not found."""
    log = open_log(wait_for_sync=True)
    assert log.max_timestamp() is None
    append(log, 10)
    job = log.begin_sync()
    assert job is not None
    job.run()
    log.end_sync(job, None)
    append(log, 20)
    assert log.offset_for_timestamp(15) is None
    assert log.max_timestamp() == (10, 0)


def test_records_that_cannot_be_read_do_not_hide_what_is_after_them() -> None:
    """A client may put garbage under a valid CRC. The batch's first offset is then as good as can be told."""
    log = open_log()
    append(log, 1)
    batch = build_batch([Record(timestamp=5, value=bytes(50))] * 2, compression="gzip")
    batch[70:80] = bytes(10)
    write_crc(batch)
    log.append(batch, origin=Origin.CLIENT, now_ms=0)
    append(log, 9)
    assert log.offset_for_timestamp(5) == (5, 1)
    assert log.offset_for_timestamp(6) == (9, 3)
