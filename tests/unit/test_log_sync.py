"""Durability: what a sync covers, what a failed one does, how it is repaired."""

import random

import pytest

from anabranch.broker.log.admission import Origin
from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.errors import DamagedLog, StorageFailed
from anabranch.broker.log.partition import PartitionLog
from anabranch.broker.log.sync import SyncJob
from anabranch.broker.wire.records import Record, build_batch
from anabranch.core.errors import InternalError
from anabranch.testing.memory_store import Crashed, MemoryStore


def open_log(store: MemoryStore, **config: int | bool) -> PartitionLog:
    settings = LogConfig(**{"wait_for_sync": True, **config})  # type: ignore[arg-type] # settings of every type
    return PartitionLog.open(store, "t/0", settings, leader_epoch=0, now_ms=0)


def append(log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        log.append(build_batch([Record(timestamp=1, value=bytes(40))]), origin=Origin.CLIENT, now_ms=0)


def begin(log: PartitionLog) -> SyncJob:
    job = log.begin_sync()
    assert job is not None
    return job


def sync(log: PartitionLog) -> None:
    job = begin(log)
    job.run()
    log.end_sync(job, None)


def fail_sync(log: PartitionLog, store: MemoryStore) -> None:
    store.fail_next_sync()
    job = begin(log)
    with pytest.raises(StorageFailed) as failed:
        job.run()
    log.end_sync(job, failed.value)


def names(store: MemoryStore) -> list[str]:
    return sorted(name.lstrip("0") for name in store.list_directory("t/0"))


def test_the_high_watermark_rises_to_where_the_log_ended_when_the_sync_began() -> None:
    """What was appended during the sync waits for the next one."""
    log = open_log(MemoryStore())
    append(log, 2)
    job = begin(log)
    append(log, 3)
    job.run()
    assert log.high_watermark == 0
    log.end_sync(job, None)
    assert (log.high_watermark, log.log_end) == (2, 5)
    sync(log)
    assert log.high_watermark == 5
    assert log.begin_sync() is None


def test_one_job_at_a_time() -> None:
    """The success of a sync beside one that failed would prove nothing."""
    log = open_log(MemoryStore())
    append(log)
    job = begin(log)
    with pytest.raises(InternalError):
        log.begin_sync()
    job.run()
    log.end_sync(job, None)
    with pytest.raises(InternalError):
        log.end_sync(job, None)


def test_a_sync_writes_index_and_snapshot_of_sealed_segments() -> None:
    """The index file is the promise that its segment is durable: it comes after the sync, never before."""
    store = MemoryStore()
    log = open_log(store, segment_bytes=250)
    append(log, 5)
    assert names(store) == [".log", "2.log", "4.log"]
    sync(log)
    assert names(store) == [".index", ".log", "2.index", "2.log", "4.log", "4.snapshot"]
    append(log, 4)
    sync(log)
    append(log, 2)
    sync(log)
    assert [name for name in names(store) if "snapshot" in name] == ["10.snapshot", "8.snapshot"], "two are kept"


def test_only_sealed_segments_are_synced_when_asked_so() -> None:
    """Under `os` the active segment is the operating system's business."""
    store = MemoryStore()
    log = open_log(store, segment_bytes=250, wait_for_sync=False)
    append(log, 1)
    assert log.begin_sync(sealed_only=True) is None
    append(log, 2)
    job = log.begin_sync(sealed_only=True)
    assert job is not None
    assert job.end_offset == 2
    job.run()
    log.end_sync(job, None)
    assert log.statistics().unsynced_bytes > 0
    assert log.begin_sync(sealed_only=True) is None


def test_the_active_segment_gets_a_clean_point_from_time_to_time() -> None:
    """Or a start after a crash would scan all of a large segment."""
    store = MemoryStore()
    log = open_log(store, checkpoint_bytes=300)
    for _ in range(4):
        append(log)
        sync(log)
    store.crash(random.Random(1))
    log = open_log(store, checkpoint_bytes=300)
    assert [finding.position for finding in log.recovery.scanned] == [log.statistics().bytes * 3 // 4]
    assert log.log_end == 4


def test_a_failed_index_file_does_not_fail_the_partition() -> None:
    """It only shortens the start; the next sync tries again, and it is counted."""
    store = MemoryStore()
    log = open_log(store, segment_bytes=250)
    append(log, 3)
    store.fail_next_write()
    sync(log)
    assert (log.high_watermark, log.failed, log.statistics().checkpoint_failures) == (3, False, 1)
    assert ".index" not in names(store)
    sync(log)
    assert ".index" in names(store)
    assert log.begin_sync() is None


def test_a_failed_sync_refuses_writes_and_serves_what_was_durable() -> None:
    """Nothing more is acknowledged until the tail is rewritten."""
    store = MemoryStore()
    log = open_log(store)
    append(log, 2)
    sync(log)
    append(log, 1)
    fail_sync(log, store)
    assert (log.failed, log.high_watermark) == (True, 2)
    with pytest.raises(StorageFailed, match="until its tail is rewritten"):
        append(log)
    assert log.begin_sync() is None
    assert len(log.read(0, 1000, limit=2, at_least_one=True)) > 100


def test_a_second_sync_would_have_been_a_lie() -> None:
    """The story that `repair` is for: sync again after a failure, get success, lose the power, lose the records."""
    store = MemoryStore()
    log = open_log(store)
    append(log, 2)
    sync(log)
    append(log, 2)
    fail_sync(log, store)
    file = store.open("t/0/" + "0" * 20 + ".log")
    file.sync()
    store.crash(random.Random(0))
    assert open_log(store).log_end == 2


@pytest.mark.parametrize("synced", [0, 1, 3])
def test_repair_writes_the_tail_into_new_files(synced: int) -> None:
    """Offsets and records stay, the high watermark rises, appends go on, and a power cut takes nothing."""
    store = MemoryStore()
    log = open_log(store, segment_bytes=250)
    append(log, synced)
    if synced:
        sync(log)
    append(log, 4)
    before = bytes(b"".join(bytes(log.read(at, 0, limit=log.log_end, at_least_one=True)) for at in range(4)))
    fail_sync(log, store)
    log.repair()
    log.check_invariants()
    assert (log.failed, log.high_watermark, log.log_end) == (False, synced + 4, synced + 4)
    append(log, 2)
    sync(log)
    store.crash(random.Random(5))
    log = open_log(store, segment_bytes=250)
    assert (log.log_end, log.recovery.clean) == (synced + 6, True)
    assert before == b"".join(bytes(log.read(at, 0, limit=log.log_end, at_least_one=True)) for at in range(4))


def test_repair_that_fails_leaves_the_partition_failed_and_can_be_tried_again() -> None:
    """A full disk, for one, may have room later."""
    store = MemoryStore()
    log = open_log(store)
    append(log, 3)
    fail_sync(log, store)
    store.capacity = store.used() + 10
    with pytest.raises(StorageFailed):
        log.repair()
    assert log.failed
    assert "tmp" not in "".join(names(store))
    store.capacity = None
    log.repair()
    assert (log.failed, log.high_watermark) == (False, 3)


def test_repair_does_not_copy_what_is_damaged() -> None:
    """A tail that cannot be read back is lost, and says so."""
    store = MemoryStore()
    log = open_log(store)
    append(log, 3)
    fail_sync(log, store)
    store.flip("t/0/" + "0" * 20 + ".log", 100)
    with pytest.raises(DamagedLog, match="lost at position 0"):
        log.repair()
    assert log.failed


def test_a_restart_after_a_failed_sync_still_knows_of_it() -> None:
    """The next process finds the lost bytes in memory. It rewrites them instead of syncing what cannot be saved."""
    store = MemoryStore()
    log = open_log(store)
    append(log, 3)
    fail_sync(log, store)
    store.kill()
    log = open_log(store)
    assert (log.failed, log.high_watermark) == (False, 3)
    store.crash(random.Random(3))
    assert open_log(store).log_end == 3


def test_a_log_that_cannot_be_synced_at_open_is_open_and_failed() -> None:
    """What was durable is served; the rest waits for a repair."""
    store = MemoryStore()
    log = open_log(store)
    append(log, 2)
    sync(log)
    append(log, 1)
    store.kill()
    store.fail_next_sync()
    log = open_log(store)
    assert (log.failed, log.high_watermark, log.log_end) == (True, 0, 3), "without an index nothing is known as durable"
    log.repair()
    assert log.high_watermark == 3


def test_segments_are_not_removed_under_a_sync() -> None:
    """A sync job has their files open; they go when it has ended."""
    store = MemoryStore()
    log = open_log(store, segment_bytes=250)
    append(log, 6)
    sync(log)
    append(log, 2)
    job = begin(log)
    log.delete_records(5)
    assert log.statistics().segments == 2
    assert ".log" in names(store)
    job.run()
    log.end_sync(job, None)
    assert [name for name in names(store) if name.endswith("log")] == ["4.log", "6.log"]


def test_a_clean_close_leaves_nothing_to_scan_and_an_idle_one_writes_nothing() -> None:
    """A thousand idle partitions stop and start quickly."""
    store = MemoryStore()
    log = open_log(store, segment_bytes=250)
    append(log, 5)
    log.close(clean=True)
    log = open_log(store, segment_bytes=250)
    assert (log.recovery.scanned, log.recovery.snapshot_offset, log.recovery.replayed_batches) == ([], 5, 0)
    before = store.operations
    log.close(clean=True)
    assert store.operations == before


def test_handles_of_a_crashed_machine_are_dead() -> None:
    """A test cannot go on with a log from before the crash by accident."""
    store = MemoryStore()
    log = open_log(store)
    append(log)
    store.crash(random.Random(0))
    with pytest.raises(Crashed):
        append(log)


class NoRemoval(MemoryStore):
    """A disk that refuses to remove files."""

    refuses = False

    def remove(self, path: str) -> None:
        if self.refuses:
            raise StorageFailed("EIO on unlink")
        super().remove(path)


def test_a_failed_removal_does_not_decide_about_acknowledgements() -> None:
    """The high watermark had risen, then the removal of an old segment failed and nobody who waited was told."""
    store = NoRemoval()
    log = open_log(store, segment_bytes=200)
    append(log, 6)
    sync(log)
    store.refuses = True
    append(log)
    job = begin(log)
    job.run()
    assert log.delete_records(4) == 4  # the files are in use by the job: they go when it ends
    log.end_sync(job, None)
    assert log.high_watermark == log.log_end == 7
    assert log.removal_failures == 1
    log.check_invariants()
