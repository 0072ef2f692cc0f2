"""The log against a dumb list, on a disk that tears, drops, fails and crashes between any two operations."""

import random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.broker.log.admission import Origin
from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.errors import BatchRefused, DamagedLog, OffsetOutOfRange, StorageFailed
from anabranch.broker.log.partition import Appended, PartitionLog
from anabranch.broker.wire.batch import BatchHeader, check_batch, read_header
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.records import Record, build_batch, iterate_records
from anabranch.testing.memory_store import Crashed, MemoryStore

DIRECTORY = "topic/0"
NEVER = -1


class Stored:
    """One batch of the model: its bytes as the log should give them back."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.header: BatchHeader = read_header(data)
        self.stamps = [(record.timestamp, record.offset) for record in iterate_records(data)]


class LogMachine(RuleBasedStateMachine):
    """Rules are what a broker does; crashes may happen inside every one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.batches: list[Stored] = []
        self.ghosts: dict[bytes, Stored] = {}
        """Batches whose write failed or was interrupted: after a crash they may stand in the place of what was lost."""
        self.durable = 0
        self.removed_below = 0
        self.stored_start = 0
        self.epoch = 0
        self.now_ms = 1_000_000
        self.sequences: dict[int, int] = {}
        self.producer_epochs = {0: 0, 1: 0}
        self.job = None
        self.job_end = 0
        self.log: PartitionLog

    @initialize(wait=st.booleans(), segment_bytes=st.sampled_from([150, 400, 2000]), interval=st.sampled_from([1, 200]))
    def start(self, wait: bool, segment_bytes: int, interval: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            wait_for_sync=wait,
            checkpoint_bytes=300,
            retention_ms=-1,
        )
        self.open()

    # what the broker does

    def open(self) -> None:
        self.epoch += 1
        self.log = PartitionLog.open(
            self.store,
            DIRECTORY,
            self.config,
            leader_epoch=self.epoch,
            now_ms=self.now_ms,
            log_start=self.stored_start,
        )
        self.job = None

    def log_end(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else 0

    @rule(count=st.integers(1, 3), size=st.integers(0, 80), stamp=st.integers(0, 50), producer=st.integers(-1, 1))
    def append(self, count: int, size: int, stamp: int, producer: int) -> None:
        """The next batch of a producer (or of none) is taken at log_end, unless the disk fails."""
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        batch = build_batch(
            [Record(timestamp=stamp + number % 2, value=bytes(size)) for number in range(count)],
            producer_id=producer,
            producer_epoch=self.producer_epochs.get(producer, -1),
            base_sequence=sequence,
        )
        before = self.log.statistics()
        try:
            appended = self.log.append(batch, origin=Origin.CLIENT, now_ms=self.now_ms)
        except StorageFailed:
            after = self.log.statistics()
            assert (after.log_end, after.producers, after.bytes) == (before.log_end, before.producers, before.bytes)
            self.ghosts[bytes(batch)] = Stored(bytes(batch))
            return
        except Crashed:
            self.ghosts[bytes(batch)] = Stored(bytes(batch))
            self.power_cut()
            return
        assert (appended.base_offset, appended.duplicate) == (self.log_end(), False)
        self.batches.append(Stored(bytes(batch)))
        if producer >= 0:
            self.sequences[producer] = sequence + count

    @rule(producer=st.integers(0, 1), back=st.integers(0, 6), shift=st.integers(0, 1))
    def repeat(self, producer: int, back: int, shift: int) -> None:
        """A repeat of one of the last five is success with its old offsets; anything else out of order is refused."""
        sent = [
            batch
            for batch in self.batches
            if batch.header.producer_id == producer
            and batch.header.producer_epoch == self.producer_epochs[producer]
            and batch.header.base_offset >= self.removed_below
        ]
        if len(sent) <= back or self.log.failed:
            return
        old = sent[-1 - back].header
        batch = build_batch(
            [Record(timestamp=1)] * (old.record_count + shift),
            producer_id=producer,
            producer_epoch=old.producer_epoch,
            base_sequence=old.base_sequence,
        )
        try:
            appended = self.log.append(batch, origin=Origin.CLIENT, now_ms=self.now_ms)
        except BatchRefused as error:
            refusal = error.code
        except StorageFailed:
            return  # the remains of a failed write could not be cut off yet
        except Crashed:
            self.power_cut()
            return
        else:
            assert appended == Appended(old.base_offset, old.last_offset, -1, duplicate=True)
            assert not shift
            return
        assert shift or back >= 5
        assert refusal in {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}

    @precondition(lambda self: self.job is None)
    @rule(sealed_only=st.booleans())
    def begin_sync(self, sealed_only: bool) -> None:
        self.job = self.log.begin_sync(sealed_only=sealed_only)
        if self.job is None and not self.log.failed and not sealed_only and self.config.wait_for_sync:
            assert self.log.high_watermark == self.log.log_end

    @precondition(lambda self: self.job is not None)
    @rule()
    def end_sync(self) -> None:
        """A job that succeeded makes all durable that was there when it began, whatever was appended meanwhile."""
        job, self.job = self.job, None
        error = None
        try:
            job.run()
        except StorageFailed as failure:
            error = failure
        except Crashed:
            self.power_cut()
            return
        if error is None:
            self.durable = max(self.durable, job.end_offset)
        try:
            self.log.end_sync(job, error)
        except Crashed:
            self.power_cut()
            return
        assert self.log.failed == (error is not None)
        if self.config.wait_for_sync:
            assert self.log.high_watermark == self.durable

    @precondition(lambda self: self.log.failed)
    @rule()
    def repair(self) -> None:
        """After a repair everything is durable and nothing has changed for anyone."""
        try:
            self.log.repair()
        except StorageFailed:
            assert self.log.failed
        except Crashed:
            self.power_cut()
        else:
            assert not self.log.failed
            self.durable = max(self.durable, self.log.log_end)
            assert self.log.high_watermark == self.log.log_end == self.log_end()

    @rule()
    def fail_next_sync(self) -> None:
        """One fault at a time: the note that a sync has failed must be writable, or only this process knows of it."""
        self.store.fail_next_write(None)
        self.store.fail_next_sync()

    @rule(kept=st.integers(0, 200))
    def fail_next_write(self, kept: int) -> None:
        self.store.fail_next_sync(0)
        self.store.fail_next_write(kept)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        before = int(self.log.high_watermark * share)
        self.removed_below = max(self.removed_below, before)
        try:
            self.stored_start = self.log.delete_records(before)
        except Crashed:
            self.power_cut()

    @rule(keep_bytes=st.integers(0, 600))
    def enforce_retention(self, keep_bytes: int) -> None:
        self.log.config = LogConfig(
            segment_bytes=self.config.segment_bytes,
            index_interval_bytes=self.config.index_interval_bytes,
            wait_for_sync=self.config.wait_for_sync,
            retention_bytes=keep_bytes,
        )
        try:
            for removed in self.log.enforce_retention(self.now_ms):
                self.removed_below = max(self.removed_below, removed.next_offset)
                assert removed.next_offset <= self.log.high_watermark
        except Crashed:
            self.removed_below = max(self.removed_below, self.log.log_start, self.log.high_watermark)
            self.power_cut()
            return
        self.log.config = self.config

    # how it ends and starts again

    @rule(operations=st.integers(0, 12))
    def crash_after(self, operations: int) -> None:
        self.store.crash_after(operations)

    @rule(seed=st.integers(0, 2**16))
    def crash(self, seed: int) -> None:
        self.power_cut(seed)

    @rule()
    def kill(self) -> None:
        """Kill -9: all that was written is there."""
        end = self.log.log_end
        self.store.kill()
        try:
            self.open()
        except Crashed:
            self.power_cut()
            return
        assert self.log.log_end == end
        self.after_restart()

    @rule()
    def stop_and_start(self) -> None:
        """After a clean stop nothing is scanned and nothing is missing."""
        failed, end = self.log.failed, self.log.log_end
        if self.job is not None:
            return
        try:
            self.log.close(clean=True)
        except StorageFailed:
            failed = True
        except Crashed:
            self.power_cut()
            return
        if not failed:
            self.durable = end
        self.store.kill()
        try:
            self.open()
        except Crashed:
            self.power_cut()
            return
        assert self.log.log_end == end
        assert failed or not self.log.recovery.scanned
        self.after_restart()

    def power_cut(self, seed: int = 0) -> None:
        """What was durable is there, byte for byte; what else is there is a prefix of what was written."""
        rng = random.Random(seed + self.store.operations)
        self.store.crash(rng)
        if rng.random() < 0.5:
            self.store.crash_after(rng.randint(0, 8))
        try:
            self.open()
        except Crashed:
            self.store.crash(rng)
            self.open()
        self.store.crash_after(None)
        self.after_restart()

    def after_restart(self) -> None:
        log = self.log
        assert log.recovery.damaged == [] or all(f.reason.startswith("offsets") for f in log.recovery.damaged)
        assert log.log_end >= self.durable
        assert log.log_start <= max(self.removed_below, self.stored_start), "the head is lost and the rest is not"
        durable_before = self.durable
        self.adopt_ghosts()
        if log.log_start > self.log_end() or not any(b.header.next_offset == log.log_end for b in self.batches):
            assert log.log_end in {0, self.stored_start}
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= log.log_end]
        if self.log_end() < log.log_end:
            # Everything up to log_start was lost and the log starts anew there: the model has a hole, too.
            assert log.log_start == log.log_end == self.stored_start
            self.batches.append(_filler(self.log_end(), log.log_end))
        headers = [
            batch.header
            for batch in self.batches
            if self.producer_epochs.get(batch.header.producer_id) == batch.header.producer_epoch
        ]
        self.sequences = {header.producer_id: header.base_sequence + header.record_count for header in headers}
        for producer in {h.producer_id for h in headers if durable_before <= h.base_offset < log.log_start}:
            # Perhaps lost before it was durable, and not missed because it had been deleted: as after any loss of
            # acknowledged records, which `os` allows, a client finds its sequence refused and takes a new epoch.
            self.sequences[producer] = 0
            self.producer_epochs[producer] += 1
        self.read_everything()
        if self.config.wait_for_sync:
            self.durable = max(self.durable, log.high_watermark)

    def adopt_ghosts(self) -> None:
        """Take over what a failed write left above the durable part, if the log ends with it."""
        offset = max(self.durable, self.log.log_start)
        while offset < self.log.log_end:
            try:
                data = bytes(self.log.read(offset, 0, limit=self.log.log_end, at_least_one=True))
            except DamagedLog:
                return
            header = read_header(data)
            if data in self.ghosts and all(batch.data != data for batch in self.batches):
                kept = [batch for batch in self.batches if batch.header.next_offset <= header.base_offset]
                later = [batch for batch in self.batches if batch.header.base_offset >= header.next_offset]
                self.batches = [*kept, self.ghosts[data], *later]
            offset = header.next_offset

    # what is looked at

    def read_everything(self) -> None:
        offset = self.log.log_start
        while offset < self.log.high_watermark:
            offset = self.read_and_compare(offset, 300)

    def read_and_compare(self, offset: int, bytes_max: int) -> int:
        try:
            data = self.log.read(offset, bytes_max, limit=self.log.high_watermark, at_least_one=True)
        except DamagedLog:
            assert offset < self.removed_below, "only an undone removal may leave a gap"
            return offset + 1
        assert len(data)
        position = 0
        expected = [batch for batch in self.batches if batch.header.last_offset >= offset]
        while position < len(data):
            header = check_batch(data, position)
            assert bytes(data[position : position + header.size]) == expected.pop(0).data
            position += header.size
            offset = header.next_offset
        assert offset <= self.log.high_watermark
        return offset

    @rule(share=st.floats(0, 1), bytes_max=st.integers(0, 1000))
    def read(self, share: float, bytes_max: int) -> None:
        """Any offset gives the batch that holds it and whole batches after it."""
        offset = int(self.log.high_watermark * share)
        try:
            if offset < self.log.log_start:
                try:
                    self.log.read(offset, bytes_max, limit=self.log.high_watermark, at_least_one=True)
                except OffsetOutOfRange:
                    return
                raise AssertionError("an offset below log_start was served")
            if offset < self.log.high_watermark:
                self.read_and_compare(offset, bytes_max)
            else:
                assert self.log.read(offset, bytes_max, limit=offset, at_least_one=True) == b""
        except Crashed:
            self.power_cut()

    @rule(stamp=st.integers(0, 52))
    def find_timestamp(self, stamp: int) -> None:
        """Offsets by time are those that a walk over all records finds."""
        if self.log.log_start < self.removed_below:
            return  # gaps of an undone removal
        stamps = [
            (time, offset)
            for batch in self.batches
            for time, offset in batch.stamps
            if self.log.log_start <= offset < self.log.high_watermark
        ]
        try:
            found = self.log.offset_for_timestamp(stamp)
            largest = self.log.max_timestamp()
        except Crashed:
            self.power_cut()
            return
        assert found == next((pair for pair in stamps if pair[0] >= stamp), None)
        assert largest == (max(stamps, key=lambda pair: (pair[0], -pair[1])) if stamps else None)

    @rule(epoch=st.integers(0, 6))
    def find_epoch(self, epoch: int) -> None:
        """An epoch ends where the first batch of a later one begins."""
        found = self.log.end_offset_for_epoch(epoch)
        if epoch > self.epoch:
            assert found == (-1, -1)
            return
        later = [b.header.base_offset for b in self.batches if b.header.leader_epoch > epoch]
        known_from = max(self.removed_below, self.log.log_start)
        assert max(known_from, found[1]) == max(known_from, later[0] if later else self.log.log_end)

    @invariant()
    def rules_hold(self) -> None:
        if hasattr(self, "log"):
            self.log.check_invariants()
            assert self.log.log_end == self.log_end()
            if not self.config.wait_for_sync:
                assert self.log.high_watermark == self.log.log_end


def _filler(start: int, end: int) -> Stored:
    records = [Record(timestamp=0)] * (end - start)
    return Stored(bytes(build_batch(records, base_offset=start)))


LogMachine.TestCase.settings = settings(
    max_examples=300,
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
TestLogModel = LogMachine.TestCase


WALK: list[tuple[str, int, dict[str, tuple[int, int]]]] = [
    ("append", 12, {"count": (1, 3), "size": (0, 80), "stamp": (0, 50), "producer": (-1, 1)}),
    ("repeat", 3, {"producer": (0, 1), "back": (0, 6), "shift": (0, 1)}),
    ("begin_sync", 4, {"sealed_only": (0, 1)}),
    ("end_sync", 4, {}),
    ("repair", 3, {}),
    ("fail_next_sync", 1, {}),
    ("fail_next_write", 1, {"kept": (0, 200)}),
    ("delete_records", 1, {"share": (0, 1)}),
    ("enforce_retention", 1, {"keep_bytes": (0, 600)}),
    ("crash_after", 1, {"operations": (0, 12)}),
    ("crash", 1, {"seed": (0, 2**16)}),
    ("kill", 1, {}),
    ("stop_and_start", 1, {}),
    ("read", 3, {"share": (0, 1), "bytes_max": (0, 1000)}),
    ("find_timestamp", 1, {"stamp": (0, 52)}),
    ("find_epoch", 1, {"epoch": (0, 6)}),
]
"""Rules with the weights of a busy broker: most of what happens is an append."""


@pytest.mark.parametrize("hundred", range(4))
def test_long_walks_through_the_same_rules(hundred: int) -> None:
    """The machine above chooses among all rules alike and makes short stories; these are long, and quick to run."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        walk(random.Random(seed), steps=80)


def walk(rng: random.Random, steps: int) -> None:
    machine = LogMachine()
    machine.start(wait=rng.random() < 0.5, segment_bytes=rng.choice([150, 400, 2000]), interval=rng.choice([1, 200]))
    for name, _, bounds in rng.choices(WALK, [weight for _, weight, _ in WALK], k=steps):
        possible = {"begin_sync": machine.job is None, "end_sync": machine.job, "repair": machine.log.failed}
        if possible.get(name, True):
            arguments = {key: rng.random() if key == "share" else rng.randint(*bound) for key, bound in bounds.items()}
            getattr(machine, name)(**arguments)
            machine.rules_hold()
