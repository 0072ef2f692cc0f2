"""What a log takes from whom, and what it answers otherwise."""

import struct

import pytest

from anabranch.broker.log.admission import Origin
from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.errors import BatchRefused, StorageFailed
from anabranch.broker.log.partition import Appended, PartitionLog
from anabranch.broker.wire.batch import LOG_APPEND_TIME, check_batch, read_header, write_crc
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.records import Record, build_batch, iterate_records
from anabranch.core.errors import UsageError
from anabranch.testing.memory_store import MemoryStore


def open_log(store: MemoryStore | None = None, *, leader_epoch: int = 5, **config: int | str | bool) -> PartitionLog:
    settings = LogConfig(**config)  # type: ignore[arg-type] # one helper for settings of every type
    return PartitionLog.open(store or MemoryStore(), "t/0", settings, leader_epoch=leader_epoch, now_ms=0)


def batch_of(count: int = 1, *, sequence: int = -1, producer: int = -1, epoch: int = -1, size: int = 10) -> bytearray:
    return build_batch(
        [Record(timestamp=100 + number, value=bytes(size)) for number in range(count)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def append(log: PartitionLog, batch: bytearray, origin: Origin = Origin.CLIENT, now_ms: int = 1000) -> Appended:
    return log.append(batch, origin=origin, now_ms=now_ms)


def refusal(log: PartitionLog, batch: bytearray, origin: Origin = Origin.CLIENT) -> ErrorCode:
    before = log.statistics()
    with pytest.raises(BatchRefused) as refused:
        append(log, batch, origin)
    assert log.statistics() == before, "a refused batch changes nothing"
    return refused.value.code


def test_offset_and_epoch_are_set_in_the_callers_buffer() -> None:
    """The bytes on disk are the client's own but for the two fields that are the broker's."""
    log = open_log()
    append(log, batch_of(3))
    batch = batch_of(2)
    assert append(log, batch) == Appended(3, 4, -1, duplicate=False)
    header = check_batch(batch)
    assert (header.base_offset, header.leader_epoch) == (3, 5)
    assert bytes(log.read(3, 1000, limit=5, at_least_one=True)) == bytes(batch)
    assert (log.log_end, log.high_watermark) == (5, 5)


def test_log_append_time_replaces_the_clients_timestamps() -> None:
    """The answer names the time, every record has it, and a duplicate is answered with its own."""
    log = open_log(timestamp_type="LogAppendTime")
    batch = batch_of(2, producer=1, epoch=0, sequence=0)
    again = bytearray(batch)
    assert append(log, batch, now_ms=777).log_append_time_ms == 777
    assert [record.timestamp for record in iterate_records(log.read(0, 1, limit=2, at_least_one=True))] == [777, 777]
    assert append(log, again, now_ms=888) == Appended(0, 1, 777, duplicate=True)
    assert log.max_timestamp() == (777, 0)


def test_a_batch_above_the_limit_is_too_large() -> None:
    """max.message.bytes counts the batch; the coordinator's own batches are not limited by it."""
    log = open_log(message_bytes_max=200)
    assert refusal(log, batch_of(size=200)) is ErrorCode.MESSAGE_TOO_LARGE
    assert append(log, batch_of(size=200), Origin.COORDINATOR).base_offset == 0


def test_a_wrong_crc_is_corrupt() -> None:
    """Checked before anything is written."""
    batch = batch_of()
    batch[-1] ^= 1
    assert refusal(open_log(), batch) is ErrorCode.CORRUPT_MESSAGE


def test_the_old_format_is_unsupported() -> None:
    """Magic 1 is not converted."""
    batch = batch_of()
    batch[16] = 1
    assert refusal(open_log(), batch) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_two_batches_at_once_are_invalid() -> None:
    """Kafka takes one batch per partition and request since magic 2."""
    assert refusal(open_log(), batch_of() + batch_of()) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        (0x20, ErrorCode.INVALID_RECORD),
        (0x10, ErrorCode.INVALID_TXN_STATE),
        (LOG_APPEND_TIME, ErrorCode.INVALID_TIMESTAMP),
        (5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (7, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_clients_may_not_set_what_is_the_brokers(attributes: int, code: ErrorCode) -> None:
    """Control and transactional batches, LogAppendTime, codecs that do not exist."""
    batch = batch_of()
    batch[21:23] = attributes.to_bytes(2, "big")
    write_crc(batch)
    assert refusal(open_log(), batch) is code


def test_a_client_numbers_its_records_without_holes() -> None:
    """Only compaction makes holes."""
    batch = batch_of(2)
    batch[57:61] = (1).to_bytes(4, "big")
    write_crc(batch)
    assert refusal(open_log(), batch) is ErrorCode.INVALID_RECORD


def test_a_producer_id_needs_a_sequence() -> None:
    """A batch that could not be told from its repetition is refused."""
    assert refusal(open_log(), batch_of(producer=1, epoch=0, sequence=-1)) is ErrorCode.INVALID_RECORD
    assert refusal(open_log(), batch_of(producer=1, epoch=-1, sequence=0)) is ErrorCode.INVALID_RECORD


def test_a_replica_keeps_offset_and_epoch_and_must_follow() -> None:
    """What a leader has decided is not decided again."""
    log = open_log()
    first = build_batch([Record()], base_offset=0, leader_epoch=3)
    assert append(log, first, Origin.REPLICA).base_offset == 0
    assert read_header(log.read(0, 1, limit=1, at_least_one=True)).leader_epoch == 3
    assert log.end_offset_for_epoch(3) == (3, 1)
    late = build_batch([Record()], base_offset=4, leader_epoch=3)
    assert refusal(log, late, Origin.REPLICA) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("kept", [0, 30, 1000])
def test_a_failed_write_changes_nothing(kept: int) -> None:
    """Offset, index, producers and file are as before, whatever part of the bytes was written; the retry is taken."""
    store = MemoryStore()
    log = open_log(store, index_interval_bytes=0)
    append(log, batch_of(2, producer=1, epoch=0, sequence=0))
    before = log.statistics()
    store.fail_next_write(kept)
    with pytest.raises(StorageFailed) as failed:
        append(log, batch_of(2, producer=1, epoch=0, sequence=2))
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.statistics() == before
    assert len(store.read_file("t/0/" + "0" * 20 + ".log") or b"") == before.bytes
    assert append(log, batch_of(2, producer=1, epoch=0, sequence=2)).base_offset == 2
    log.check_invariants()


def test_a_full_disk_refuses_writes_serves_reads_and_goes_on_with_room() -> None:
    """No acknowledgement is a lie, and nothing has to be restarted."""
    store = MemoryStore(capacity=1000)
    log = open_log(store)
    while True:
        try:
            append(log, batch_of(size=100))
        except StorageFailed:
            break
    end = log.log_end
    assert end > 3
    assert len(log.read(0, 10_000, limit=end, at_least_one=True)) == log.statistics().bytes
    with pytest.raises(StorageFailed):
        append(log, batch_of(size=200))
    store.capacity = 2000
    assert append(log, batch_of(size=200)).base_offset == end


def test_a_full_disk_at_a_roll_tries_the_roll_again() -> None:
    """After a roll that failed nothing may be appended to the old segment: recovery would end it at the new one."""
    store = MemoryStore()
    log = open_log(store, segment_bytes=300)
    append(log, batch_of(size=100))
    store.fail_next_create()
    with pytest.raises(StorageFailed):
        append(log, batch_of(size=100))
    for _ in range(2):
        append(log, batch_of(size=1))
    assert sorted(name for name in store.list_directory("t/0")) == ["0" * 20 + ".log", "1".zfill(20) + ".log"]
    store.kill()
    assert open_log(store).log_end == 3


def test_segments_roll_by_size_and_by_age() -> None:
    """A batch that does not fit begins a new one; so does the first append after `segment_ms`, and `roll_if_old`."""
    log = open_log(segment_bytes=250, segment_ms=1000)
    for _ in range(3):
        append(log, batch_of(size=40), now_ms=0)
    assert log.statistics().segments == 2
    append(log, batch_of(size=40), now_ms=1000)
    assert log.statistics().segments == 3
    assert not log.roll_if_old(1999)
    assert log.roll_if_old(2000)
    assert not log.roll_if_old(9000), "an empty segment is never old"
    assert log.statistics().segments == 4
    log.check_invariants()


def test_the_age_of_a_segment_survives_a_restart() -> None:
    """After a restart its first record tells how old it is."""
    store = MemoryStore()
    append(open_log(store), batch_of())
    log = open_log(store, segment_ms=1000)
    assert not log.roll_if_old(1099)
    assert log.roll_if_old(1100)


def test_settings_may_change_while_it_is_open() -> None:
    """The next call uses the new ones."""
    log = open_log(wait_for_sync=True)
    append(log, batch_of())
    assert log.high_watermark == 0
    log.config = LogConfig(wait_for_sync=False, message_bytes_max=60)
    assert log.high_watermark == 1
    assert refusal(log, batch_of()) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_bytes": 0},
        {"segment_bytes": 2**31},
        {"message_bytes_max": 0},
        {"index_interval_bytes": -1},
        {"segment_ms": 0},
        {"timestamp_type": "Later"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    """With a sentence that names the setting."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        LogConfig(**wrong)  # type: ignore[arg-type] # wrong on purpose


def test_a_batch_without_records_is_refused() -> None:
    """It was written, moved no offset, and looked like damage to every reader: the next start cut all behind it."""
    log = open_log()
    batch = batch_of()
    struct.pack_into(">i", batch, 23, -1)  # last offset delta
    struct.pack_into(">i", batch, 57, 0)  # record count
    write_crc(batch)
    with pytest.raises(BatchRefused):
        append(log, batch)
    assert log.log_end == 0
    assert append(log, batch_of()).base_offset == 0
