"""Removing what is old, too much, or no longer wanted."""

import pytest

from anabranch.broker.log.admission import Origin
from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.errors import OffsetOutOfRange
from anabranch.broker.log.partition import PartitionLog
from anabranch.broker.wire.records import Record, build_batch
from anabranch.testing.memory_store import MemoryStore


def open_log(store: MemoryStore, log_start: int = 0, **config: int | bool) -> PartitionLog:
    settings = LogConfig(**{"segment_bytes": 250, **config})  # type: ignore[arg-type] # settings of every type
    return PartitionLog.open(store, "t/0", settings, leader_epoch=0, now_ms=0, log_start=log_start)


def append(log: PartitionLog, *timestamps: int) -> None:
    """Two batches fill a segment."""
    for stamp in timestamps:
        log.append(build_batch([Record(timestamp=stamp, value=bytes(40))]), origin=Origin.CLIENT, now_ms=0)
    job = log.begin_sync()
    if job is not None:
        job.run()
        log.end_sync(job, None)


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    """Wall time against the largest timestamp: one young record keeps its segment and all after it."""
    store = MemoryStore()
    log = open_log(store, retention_ms=1000)
    append(log, 10, 20, 30, 900, 15, 16, 5000)
    assert log.enforce_retention(1020) == []
    removed = log.enforce_retention(1021)
    assert [(segment.base_offset, segment.next_offset) for segment in removed] == [(0, 2)]
    assert "older than 1000 ms" in removed[0].reason
    assert log.log_start == 2
    assert [segment.base_offset for segment in log.enforce_retention(1901)] == [2, 4]
    assert (log.log_start, log.statistics().segments) == (6, 1)
    log.check_invariants()


def test_the_active_segment_is_never_removed() -> None:
    """However old it is; it has to be rolled first."""
    store = MemoryStore()
    log = open_log(store, retention_ms=1)
    append(log, 10)
    assert log.enforce_retention(10**12) == []
    log.roll_if_old(10**12)
    append(log, 10**12)
    assert [segment.base_offset for segment in log.enforce_retention(10**12)] == [0]


def test_segments_go_while_enough_bytes_are_left() -> None:
    """At least retention_bytes are always there."""
    store = MemoryStore()
    log = open_log(store, retention_ms=-1)
    append(log, *range(9))
    total = log.statistics().bytes
    log.config = LogConfig(segment_bytes=250, retention_bytes=total - 1, retention_ms=-1)
    assert log.enforce_retention(0) == []
    log.config = LogConfig(segment_bytes=250, retention_bytes=total // 2, retention_ms=-1)
    log.enforce_retention(0)
    assert total // 2 <= log.statistics().bytes < total // 2 + 250
    log.config = LogConfig(segment_bytes=250, retention_bytes=-1, retention_ms=-1)
    assert log.enforce_retention(10**15) == []


def test_nothing_above_the_high_watermark_is_removed() -> None:
    """What is not acknowledged yet has not been seen by anyone."""
    store = MemoryStore()
    log = open_log(store, retention_bytes=0, wait_for_sync=True)
    for stamp in range(5):
        log.append(build_batch([Record(timestamp=stamp, value=bytes(40))]), origin=Origin.CLIENT, now_ms=0)
    assert log.enforce_retention(10**15) == []


def test_segments_without_a_snapshot_wait_for_one() -> None:
    """Or a crash would forget producers whose records are gone: their retries would be taken for new records."""
    store = MemoryStore()
    log = open_log(store, retention_bytes=0)
    for sequence in range(5):
        batch = build_batch([Record(value=bytes(40))], producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.append(batch, origin=Origin.CLIENT, now_ms=0)
    assert log.enforce_retention(0) == []
    job = log.begin_sync(sealed_only=True)
    assert job is not None
    job.run()
    log.end_sync(job, None)
    assert len(log.enforce_retention(0)) == 2
    store.kill()
    log = open_log(store)
    assert log.log_start == 4
    again = build_batch([Record()], producer_id=1, producer_epoch=0, base_sequence=2)
    assert log.append(again, origin=Origin.CLIENT, now_ms=0).duplicate


def test_a_full_disk_does_not_keep_old_segments_alive() -> None:
    """When snapshots cannot be written, room matters more."""
    store = MemoryStore()
    log = open_log(store, retention_bytes=0)
    append(log)
    for stamp in range(5):
        log.append(build_batch([Record(timestamp=stamp, value=bytes(40))]), origin=Origin.CLIENT, now_ms=0)
    store.capacity = store.used()
    job = log.begin_sync()
    assert job is not None
    job.run()
    log.end_sync(job, None)
    assert log.statistics().checkpoint_failures == 1
    assert len(log.enforce_retention(0)) == 2
    append(log, 9)
    assert log.log_end == 6


def test_deleted_records_stay_deleted() -> None:
    """log_start may stand within a batch; whole segments below it are removed; a restart is told where it was."""
    store = MemoryStore()
    log = open_log(store)
    append(log, *range(7))
    assert log.delete_records(5) == 5
    assert log.delete_records(3) == 5, "never back"
    assert log.statistics().segments == 2
    with pytest.raises(OffsetOutOfRange):
        log.read(4, 100, limit=7, at_least_one=True)
    for wrong in (-1, 8):
        with pytest.raises(OffsetOutOfRange):
            log.delete_records(wrong)
    log.close(clean=True)
    log = open_log(store, log_start=5)
    assert (log.log_start, log.log_end) == (5, 7)
    assert log.delete_records(7) == 7
    assert log.read(7, 100, limit=7, at_least_one=True) == b""
    append(log, 1)
    assert log.log_end == 8


def test_producers_that_are_silent_for_a_day_are_forgotten() -> None:
    """The same sweep takes them."""
    log = open_log(MemoryStore())
    log.append(
        build_batch([Record()], producer_id=1, producer_epoch=0, base_sequence=0), origin=Origin.CLIENT, now_ms=0
    )
    log.enforce_retention(24 * 3600 * 1000)
    assert log.statistics().producers == 1
    log.enforce_retention(24 * 3600 * 1000 + 1)
    assert log.statistics().producers == 0
