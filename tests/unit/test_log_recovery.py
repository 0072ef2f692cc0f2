"""Opening a folder after any kind of end: what is trusted, scanned, cut and kept."""

import struct

import pytest

from anabranch.broker.log.admission import Origin
from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.envelope import seal
from anabranch.broker.log.errors import DamagedLog
from anabranch.broker.log.partition import PartitionLog
from anabranch.broker.wire.batch import read_header
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.records import Record, build_batch
from anabranch.core.errors import UsageError
from anabranch.testing.memory_store import MemoryStore

CONFIG = LogConfig(segment_bytes=250, index_interval_bytes=0)
BATCH_BYTES = len(build_batch([Record(timestamp=1, value=bytes(40))]))


def open_log(
    store: MemoryStore, *, leader_epoch: int = 0, log_start: int = 0, config: LogConfig = CONFIG
) -> PartitionLog:
    return PartitionLog.open(store, "t/0", config, leader_epoch=leader_epoch, now_ms=0, log_start=log_start)


def append(log: PartitionLog, count: int = 1, *, first: int | None = None) -> None:
    for number in range(count):
        sequence = (log.log_end if first is None else first + number) & 0x7FFFFFFF
        batch = build_batch(
            [Record(timestamp=1, value=bytes(40))], producer_id=9, producer_epoch=0, base_sequence=sequence
        )
        assert not log.append(batch, origin=Origin.CLIENT, now_ms=0).duplicate


def written(count: int, *, clean: bool) -> MemoryStore:
    """A log with two batches per segment."""
    store = MemoryStore()
    log = open_log(store)
    append(log, count)
    log.close(clean=clean)
    return store


def path(base: int, kind: str = "log") -> str:
    return f"t/0/{base:020d}.{kind}"


def served(log: PartitionLog) -> list[int]:
    """The offsets that can be read; -1 for those that are answered CORRUPT_MESSAGE."""
    found = []
    for offset in range(log.log_start, log.log_end):
        try:
            found.append(read_header(log.read(offset, 0, limit=log.log_end, at_least_one=True)).base_offset)
        except DamagedLog as error:
            found.append(-1 if error.code is ErrorCode.CORRUPT_MESSAGE else -2)
    return found


def test_a_new_log_is_empty_and_starts_where_it_is_told() -> None:
    """log_start is given by the caller, who stores it."""
    store = MemoryStore()
    log = open_log(store, log_start=17)
    assert (log.log_start, log.high_watermark, log.log_end) == (17, 17, 17)
    append(log)
    assert served(log) == [17]


def test_all_segments_are_found_again_after_a_kill() -> None:
    """Nothing was cut, all was scanned, offsets and producers go on."""
    store = written(7, clean=False)
    log = open_log(store)
    assert (log.log_end, log.recovery.clean, len(log.recovery.scanned)) == (7, True, 4)
    assert log.recovery.replayed_batches == 7
    append(log, 2)
    assert served(log) == list(range(9))


def test_a_torn_tail_is_cut_and_reported() -> None:
    """Half a batch at the end: the log ends with the last whole one, and the caller can say what was cut."""
    store = written(3, clean=False)
    store.open(path(2)).write_at(build_batch([Record(value=bytes(40))], base_offset=3)[:70], BATCH_BYTES)
    log = open_log(store)
    assert served(log) == [0, 1, 2]
    (cut,) = log.recovery.cut
    assert (cut.path, cut.position, cut.bytes) == (path(2), BATCH_BYTES, 70)
    assert "torn" in cut.reason
    append(log)
    assert served(log) == [0, 1, 2, 3]


@pytest.mark.parametrize(("base", "left"), [(0, 0), (2, 2), (4, 4), (6, 6)])
def test_a_bad_batch_in_an_unclean_log_ends_it(base: int, left: int) -> None:
    """All below stays; the rest of its segment and all later ones are removed, and reported."""
    store = written(7, clean=False)
    store.flip(path(base), 80)
    log = open_log(store)
    assert (log.log_end, served(log)) == (left, list(range(left)))
    assert sum(cut.bytes for cut in log.recovery.cut) == (7 - left) * BATCH_BYTES
    append(log, 2)
    assert open_log(store).log_end == left + 2


@pytest.mark.parametrize("position", [5, 20, 30, 80])
def test_damage_below_the_clean_point_is_answered_and_never_cut(position: int) -> None:
    """Flipped in its offset, CRC, header or records: only that batch cannot be read, before and after more appends."""
    store = written(7, clean=True)
    store.flip(path(2), BATCH_BYTES + position)
    log = open_log(store)
    assert (log.log_end, log.recovery.clean) == (7, True)
    assert served(log) == [0, 1, 2, -1, 4, 5, 6]
    append(log, 3)
    log.close(clean=False)
    assert served(open_log(store)) == [0, 1, 2, -1, *range(4, 10)]


def test_a_read_gives_what_is_good_before_the_damage() -> None:
    """A consumer gets as far as there is something; then it is told."""
    store = MemoryStore()
    config = LogConfig(index_interval_bytes=0)
    log = open_log(store, config=config)
    append(log, 5)
    log.close(clean=True)
    store.flip(path(0), 3 * BATCH_BYTES + 80)
    log = open_log(store, config=config)
    assert len(log.read(0, 10_000, limit=5, at_least_one=True)) == 3 * BATCH_BYTES
    with pytest.raises(DamagedLog):
        log.read(3, 10_000, limit=5, at_least_one=True)
    assert len(log.read(4, 10_000, limit=5, at_least_one=True)) == BATCH_BYTES


def test_sequential_reads_check_each_byte_once() -> None:
    """What was checked, or written by this process, is trusted from then on."""
    store = written(4, clean=True)
    log = open_log(store)
    assert served(log) == [0, 1, 2, 3]
    store.flip(path(0), 80)
    assert served(log) == [0, 1, 2, 3], "no second look: the page cache is trusted as memory is"


@pytest.mark.parametrize("base", [0, 2, 4])
@pytest.mark.parametrize("how", ["missing", "head", "rows", "short"])
def test_index_files_can_be_made_again(base: int, how: str) -> None:
    """Absent or damaged, the log is complete all the same."""
    store = written(6, clean=True)
    if how == "missing":
        store.remove(path(base, "index"))
    elif how == "short":
        store.shorten(path(base, "index"), 20)
    else:
        store.flip(path(base, "index"), 14 if how == "head" else -1)
    log = open_log(store)
    assert (log.recovery.clean, served(log)) == (True, list(range(6)))
    append(log, 1)
    log.close(clean=True)
    log = open_log(store)
    assert (log.recovery.scanned, served(log)) == ([], list(range(7)))


def test_damage_below_the_clean_point_is_kept_even_without_its_index() -> None:
    """A later index file vouches for all before it: the unreadable part keeps its offsets, the rest is served."""
    store = written(7, clean=True)
    store.remove(path(2, "index"))
    store.flip(path(2), BATCH_BYTES + 9)
    log = open_log(store)
    assert served(log) == [0, 1, 2, -1, 4, 5, 6]
    assert [finding.path for finding in log.recovery.damaged] == [path(2)]


def test_a_missing_segment_in_the_middle_is_a_gap_below_the_clean_point() -> None:
    """Somebody removed a file: its offsets are answered CORRUPT_MESSAGE, all others are served."""
    store = written(7, clean=True)
    store.remove(path(2))
    log = open_log(store)
    assert served(log) == [0, 1, -1, -1, 4, 5, 6]
    assert "offsets 2 to 3 are missing" in log.recovery.damaged[0].reason


def test_a_missing_segment_in_an_unclean_tail_ends_the_log() -> None:
    """What is above a gap may have been written later than what was lost: only a prefix counts."""
    store = written(7, clean=False)
    store.remove(path(2))
    log = open_log(store)
    assert (log.log_end, served(log)) == (2, [0, 1])


def test_a_truncated_last_segment_does_not_leave_its_index_behind() -> None:
    """The story: truncated below its clean point, appended to until it is as long again, killed. The old index would
    vouch for bytes that it has never seen, and a torn batch in them would be kept."""
    store = written(2, clean=True)
    store.shorten(path(0), BATCH_BYTES + 30)
    log = open_log(store)
    assert (log.log_end, "shorter than its clean point" in log.recovery.cut[0].reason) == (1, True)
    append(log, 1, first=1)
    log.close(clean=False)
    store.flip(path(0), BATCH_BYTES + 80)
    assert open_log(store).log_end == 1, "scanned, and cut"


def test_producers_do_not_remember_what_a_truncation_has_taken() -> None:
    """A snapshot above log_end would call the retry of a lost record a duplicate, and it would be lost for good."""
    store = written(2, clean=True)
    assert store.read_file(path(2, "snapshot")) is not None
    store.shorten(path(0), BATCH_BYTES)
    log = open_log(store)
    assert store.read_file(path(2, "snapshot")) is None
    append(log, 1, first=1)
    assert log.log_end == 2


def test_a_snapshot_above_the_end_is_gone_before_the_log_grows_past_it() -> None:
    """The story: cut below a snapshot, other records come, stop; the snapshot speaks of records that never were."""
    store = written(4, clean=False)
    log = open_log(store)
    log.close(clean=True)
    for base in (0, 2):
        store.remove(path(base, "index"))
    store.flip(path(2), 80)
    log = open_log(store)
    assert log.log_end == 2
    for number in range(4):
        batch = build_batch([Record()], producer_id=5, producer_epoch=0, base_sequence=number)
        log.append(batch, origin=Origin.CLIENT, now_ms=0)
    log.close(clean=False)
    log = open_log(store)
    assert log.statistics().producers == 2
    append(log, 1, first=2)


def test_producers_are_replayed_from_the_newest_snapshot_on() -> None:
    """What is in the snapshot is not read again; without any, all is."""
    store = written(7, clean=True)
    log = open_log(store)
    append(log, 2)
    log.close(clean=False)
    assert (open_log(store).recovery.snapshot_offset, open_log(store).recovery.replayed_batches) == (7, 2)
    for name in store.list_directory("t/0"):
        if name.endswith("snapshot"):
            store.remove(f"t/0/{name}")
    log = open_log(store)
    assert (log.recovery.snapshot_offset, log.recovery.replayed_batches) == (-1, 9)
    append(log)
    again = build_batch([Record(timestamp=1)], producer_id=9, producer_epoch=0, base_sequence=8)
    assert log.append(again, origin=Origin.CLIENT, now_ms=0).duplicate


def test_leader_epochs_are_found_again() -> None:
    """From the snapshot and from the batches above it."""
    store = MemoryStore()
    for epoch in (3, 5, 9):
        log = open_log(store, leader_epoch=epoch)
        append(log, 3)
        log.close(clean=epoch != 9)
    log = open_log(store, leader_epoch=10)
    assert [log.end_offset_for_epoch(epoch) for epoch in (2, 3, 4, 5, 8, 9, 10, 11)] == [
        (2, 0), (3, 3), (3, 3), (5, 6), (5, 6), (9, 9), (10, 9), (-1, -1)
    ]  # fmt: skip


def test_a_log_start_above_the_end_starts_anew() -> None:
    """Under `os` a crash may lose what had been deleted already. Its offsets must not be given out again."""
    store = written(4, clean=False)
    log = open_log(store, log_start=9)
    assert (log.log_start, log.log_end) == (9, 9)
    append(log, 1)
    assert served(open_log(store, log_start=9)) == [9]


def test_segments_below_log_start_are_removed_and_their_damage_does_not_matter() -> None:
    """log_start is what the caller stored at the last delete_records."""
    store = written(7, clean=False)
    store.flip(path(0), 80)
    log = open_log(store, log_start=5)
    assert (log.log_start, served(log)) == (5, [5, 6])
    assert store.read_file(path(0)) is None
    assert store.read_file(path(2)) is None


def test_files_that_a_crash_left_half_written_are_removed() -> None:
    """And names that are none of ours are left alone."""
    store = written(2, clean=True)
    for name in ("00000000000000000002.snapshot.tmp", "00000000000000000005.index", "notes.txt", "7.log"):
        store.replace_file(f"t/0/{name}", b"x")
    log = open_log(store)
    assert served(log) == [0, 1]
    names = store.list_directory("t/0")
    assert {"notes.txt", "7.log"} <= set(names)
    assert not {"00000000000000000002.snapshot.tmp", "00000000000000000005.index"} & set(names)


def test_an_interrupted_repair_is_not_a_reason_to_cut() -> None:
    """A segment that reaches into the next one ends where the next begins; no record is lost or given twice."""
    store = written(2, clean=False)
    tail = bytes(store.read_file(path(0)) or b"")[BATCH_BYTES:]
    store.create(path(1)).write_at(tail, 0)
    log = open_log(store)
    log.check_invariants()
    assert (log.log_end, served(log)) == (2, [0, 1])
    assert len(store.read_file(path(0)) or b"") == BATCH_BYTES


@pytest.mark.parametrize(("kind", "magic"), [("index", b"ABIX"), ("snapshot", b"ABSN")])
def test_another_format_version_is_refused_with_a_sentence(kind: str, magic: bytes) -> None:
    """A newer release wrote it on purpose: guessing at it could lose records."""
    store = written(2, clean=True)
    name = path(0 if kind == "index" else 2, kind)
    body = (store.read_file(name) or b"")[12:]
    store.replace_file(name, seal(magic, 2, body[:32] if kind == "index" else body))
    with pytest.raises(UsageError, match="format version 2 and this release reads version 1"):
        open_log(store)


def test_garbage_in_a_segment_is_cut_whatever_it_says() -> None:
    """Lengths of gigabytes, negative ones, other magics: no allocation, no exception, the log ends there."""
    for length, magic in [(2**31 - 1, 2), (-1, 2), (0, 2), (49, 1), (49, 2)]:
        store = written(1, clean=False)
        garbage = bytearray(61)
        struct.pack_into(">qiib", garbage, 0, 1, length, 0, magic)
        store.open(path(0)).write_at(garbage, BATCH_BYTES)
        log = open_log(store)
        assert (log.log_end, log.recovery.cut[0].bytes) == (1, 61)
