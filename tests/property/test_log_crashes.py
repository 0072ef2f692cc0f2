"""Crash at every single operation of a few stories, and damage every single byte of a small log."""

import random
from collections.abc import Callable

import pytest

from anabranch.broker.log.admission import Origin
from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.errors import DamagedLog, StorageFailed
from anabranch.broker.log.partition import PartitionLog
from anabranch.broker.wire.batch import check_batch, read_header
from anabranch.broker.wire.records import Record, build_batch
from anabranch.testing.memory_store import Crashed, MemoryStore

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=1, wait_for_sync=True, checkpoint_bytes=150)


class Story:
    """A log under `always`, with what was written and what was acknowledged."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.store = MemoryStore()
        self.config = config
        self.written: list[bytes] = []
        self.acknowledged = 0
        self.log_start = 0
        self.open()

    def open(self) -> None:
        self.log = PartitionLog.open(self.store, "t/0", self.config, leader_epoch=1, now_ms=1, log_start=self.log_start)

    def append(self, count: int) -> None:
        for _ in range(count):
            sequence = len(self.written)
            batch = build_batch(
                [Record(timestamp=sequence, value=bytes(40))], producer_id=1, producer_epoch=0, base_sequence=sequence
            )
            self.written.append(bytes(batch))  # also when it is interrupted: it may be there
            try:
                self.log.append(batch, origin=Origin.CLIENT, now_ms=1)
            finally:
                self.written[-1] = bytes(batch)

    def sync(self) -> None:
        job = self.log.begin_sync()
        if job is None:
            return
        error = None
        try:
            job.run()
        except StorageFailed as failure:
            error = failure
        else:
            self.acknowledged = max(self.acknowledged, job.end_offset)
        self.log.end_sync(job, error)

    def check(self) -> None:
        """All that was acknowledged is there, what is there is a prefix, and the next append is taken."""
        log = self.log
        assert self.acknowledged <= log.log_end <= len(self.written)
        log.check_invariants()
        offset = log.log_start
        while offset < log.log_end:
            data = log.read(offset, 0, limit=log.log_end, at_least_one=True)
            check_batch(data)
            assert bytes(data) == self.written[offset]
            offset += 1
        del self.written[log.log_end :]
        if log.log_end > log.log_start:
            repeated = log.append(bytearray(self.written[-1]), origin=Origin.CLIENT, now_ms=1)
            assert (repeated.base_offset, repeated.duplicate) == (log.log_end - 1, True)
        self.append(1)


def roll_and_sync(story: Story) -> None:
    for _ in range(3):
        story.append(3)
        story.sync()


def repair_after_failed_sync(story: Story) -> None:
    story.append(4)
    story.sync()
    story.append(5)
    story.store.fail_next_sync()
    story.sync()
    story.log.repair()
    story.acknowledged = story.log.high_watermark
    story.append(2)
    story.sync()


def stop_and_start(story: Story) -> None:
    story.append(5)
    story.log.close(clean=True)
    story.acknowledged = 5
    story.open()
    story.append(4)
    story.sync()


def remove_old_segments(story: Story) -> None:
    story.append(12)
    story.sync()
    story.log_start = 7
    story.log.delete_records(7)
    story.append(2)
    story.sync()
    story.log.config = LogConfig(segment_bytes=300, retention_bytes=1, wait_for_sync=True)
    story.log.enforce_retention(1)


def recover_from_a_torn_tail(story: Story) -> None:
    story.append(3)
    story.sync()
    story.append(9)
    story.store.flip("t/0/00000000000000000004.log", 80)
    story.store.kill()
    story.open()
    del story.written[story.log.log_end :]
    story.append(3)
    story.sync()


STORIES = [roll_and_sync, repair_after_failed_sync, stop_and_start, remove_old_segments, recover_from_a_torn_tail]


@pytest.mark.parametrize("power", [True, False], ids=["power cut", "kill"])
@pytest.mark.parametrize("tell", STORIES)
def test_a_crash_at_any_operation_loses_nothing_acknowledged(tell: Callable[[Story], None], power: bool) -> None:
    """Wherever a story, or the recovery after it, stops: acknowledged records are there and the rest is a prefix."""
    operation = 0
    finished = False
    while not finished:
        for seed in range(8 if power else 1):
            rng = random.Random(operation * 7 + seed)
            story = Story()
            story.store.crash_after(operation)
            try:
                tell(story)
                finished = True
            except Crashed:
                pass
            restart(story, rng, power=power)
            story.check()
        operation += 1
    assert operation > 10


def restart(story: Story, rng: random.Random, *, power: bool) -> None:
    while True:
        if power:
            story.store.crash(rng)
        else:
            story.store.kill()
        if rng.random() < 0.5:
            story.store.crash_after(rng.randint(0, 6))
        try:
            story.open()
        except Crashed:
            continue
        story.store.crash_after(None)
        return


@pytest.mark.parametrize("clean", [True, False])
def test_a_flipped_byte_is_never_served_and_costs_only_what_it_must(clean: bool) -> None:
    """Flip each byte of each file. Above the clean point the log ends there; below it only reads of that batch fail."""
    config = LogConfig(segment_bytes=300, index_interval_bytes=1)
    names = [f"t/0/{base:020d}.{kind}" for base in (0, 2) for kind in ("log", "index")] + [
        "t/0/" + "4".zfill(20) + ".log"
    ]
    for name in names:
        position = 0
        while True:
            story = Story(config)
            story.append(5)
            story.log.close(clean=clean)
            size = len(story.store.read_file(name) or b"")
            if position >= size:
                break
            story.store.flip(name, position)
            story.store.kill()
            story.open()
            assert_served_as_written(story, clean=clean, data=name.endswith(".log"))
            position += 1


def assert_served_as_written(story: Story, *, clean: bool, data: bool) -> None:
    log = story.log
    log.check_invariants()
    damaged = []
    for offset in range(log.log_start, log.log_end):
        try:
            read = log.read(offset, 10_000, limit=log.log_end, at_least_one=True)
        except DamagedLog:
            damaged.append(offset)
            continue
        position = 0
        while position < len(read):
            header = check_batch(read, position)
            assert without_epoch(read[position : position + header.size]) == without_epoch(
                story.written[header.base_offset]
            )
            position += header.size
    if not data:
        assert (log.log_end, damaged) == (5, [])
    elif clean:
        assert log.log_end == 5
        assert len(damaged) <= 1
    else:
        assert damaged == []
        assert log.recovery.clean == (log.log_end == 5)


def without_epoch(batch: bytes | memoryview) -> bytes:
    """The leader epoch is outside the CRC and nothing else knows it."""
    return bytes(batch[:12]) + bytes(batch[16:])


@pytest.mark.parametrize("clean", [True, False])
def test_a_truncated_last_segment_keeps_every_whole_batch(clean: bool) -> None:
    """Cut the last segment at each byte: whole batches stay, the rest is reported, and the offsets are used again."""
    for size in range(0, 240, 3):
        story = Story(LogConfig(segment_bytes=1000, index_interval_bytes=1))
        story.append(2)
        story.log.close(clean=clean)
        name = "t/0/" + "0" * 20 + ".log"
        whole = len(story.store.read_file(name) or b"")
        if size >= whole:
            break
        story.store.shorten(name, size)
        story.store.kill()
        story.open()
        assert story.log.log_end == size // read_header(story.written[0]).size
        assert story.log.recovery.cut or size % (whole // 2) == 0
        story.check()


def test_a_sealed_segment_that_is_too_short_costs_only_its_missing_offsets() -> None:
    """Below the clean point nothing else is lost: the offsets around the missing ones are served, as are new ones."""
    story = Story(LogConfig(segment_bytes=300, index_interval_bytes=1))
    story.append(6)
    story.log.close(clean=True)
    story.store.shorten("t/0/" + "2".zfill(20) + ".log", 120)
    story.open()
    assert [finding.reason[:17] for finding in story.log.recovery.damaged] == ["offsets 3 to 3 ar"]
    served = []
    for offset in range(6):
        try:
            served.append(read_header(story.log.read(offset, 0, limit=6, at_least_one=True)).base_offset)
        except DamagedLog:
            served.append(-1)
    assert served == [0, 1, 2, -1, 4, 5]
    story.append(1)
    assert story.log.log_end == 7
