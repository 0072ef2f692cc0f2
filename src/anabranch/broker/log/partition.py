"""The log of one partition: append, read, sync, remove. Everything that happens to it goes through `PartitionLog`.

State: segments in order (the last one is active), producers, leader epochs, and three positions:

    log_start ≤ high_watermark ≤ log_end

Under `always` (wait_for_sync) the high watermark rises when a sync has ended, otherwise with every append. What holds
after every call: segments adjoin (each begins where the one before ends), the batches of a segment adjoin, and an
append that failed has changed nothing. A write that failed may have left bytes behind the end: they are cut off at
once, or before the next append if the disk does not even allow that.

After a failed sync the partition is `failed`: it refuses appends, reads go on, `repair` ends it. A log may be failed as
soon as it is opened, when the process before it saw a sync fail and the tail could not be rewritten yet.

Threads: one, except that `SyncJob.run`, `offset_for_timestamp` and `max_timestamp` may run in another.
"""

from anabranch.broker.log import timestamps
from anabranch.broker.log.admission import Origin, admit
from anabranch.broker.log.answers import Appended, LogStatistics
from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.durability import Durability, failure_is_noted, forget_failure, note_failure
from anabranch.broker.log.errors import BatchRefused, DamagedLog, OffsetOutOfRange, StorageFailed
from anabranch.broker.log.index import IndexCache
from anabranch.broker.log.reading import position_of, read_batches
from anabranch.broker.log.recovery import Recovered, recover
from anabranch.broker.log.repair import cut_back, rewrite_tails, splice
from anabranch.broker.log.retention import Removed, due_for_removal
from anabranch.broker.log.segment import LOG_SUFFIX, Segment, segment_path
from anabranch.broker.log.segments import Segments
from anabranch.broker.log.store import Store
from anabranch.broker.log.sync import Mark, SyncJob
from anabranch.broker.wire.batch import HEADER_BYTES, BatchHeader, patch, read_header, stamp_append_time
from anabranch.broker.wire.error_codes import ErrorCode

__all__ = ["Appended", "LogStatistics", "Origin", "PartitionLog"]

_RELATIVE_OFFSET_MAX = 2**31 - 1


class PartitionLog:
    """One partition on a store. Made by `open`."""

    def __init__(
        self, store: Store, directory: str, config: LogConfig, state: Recovered, *, leader_epoch: int, cache: IndexCache
    ) -> None:
        self._store = store
        self._directory = directory
        self._config = config
        self._segments = Segments(store, state.segments, cache, config.index_interval_bytes)
        self._durability = Durability(store, directory, self._segments, state.snapshots)
        self._producers = state.producers
        self._epochs = state.epochs
        self.recovery = state.report
        self.leader_epoch = leader_epoch
        self.failed = False
        active = self._segments.active
        self.log_start = self._segments.start
        self.log_end = active.next_offset
        self.high_watermark = self.log_end
        self._watermark_mark = Mark(active, active.size, self.log_end)
        self._untrimmed: list[Segment] = []
        self._tail_is_dirty = False
        self._must_roll = False
        self.removal_failures = 0
        """How often segments that are due for removal could not be removed."""

    @classmethod
    def open(
        cls,
        store: Store,
        directory: str,
        config: LogConfig,
        *,
        leader_epoch: int,
        now_ms: int,
        log_start: int = 0,
        index_cache: IndexCache | None = None,
    ) -> "PartitionLog":
        """Open or create the log in `directory` and recover it; `recovery` says what was found.

        `log_start` is what `delete_records` gave last. Several logs may share an `index_cache`. Under wait_for_sync all
        that was recovered is synced before it counts. May block for as long as it takes to read the unclean tail.
        """
        store.make_directory(directory)
        try:
            state = recover(store, directory, config, log_start, now_ms)
        except StorageFailed:
            note_failure(store, directory)
            raise
        cache = IndexCache() if index_cache is None else index_cache
        log = cls(store, directory, config, state, leader_epoch=leader_epoch, cache=cache)
        log.log_start = max(log_start, log.log_start)
        log._settle_recovered()
        return log

    def _settle_recovered(self) -> None:
        """Find what is not durable, names included: the process that made them may have been killed before its sync."""
        unsynced = self._segments.unsynced()
        if unsynced or self._segments.active.size == 0:
            self._durability.names_are_unsynced()
        if self._durability.unsettled:
            self._durability.want_snapshot(self.log_end, self._producers, self._epochs)
        self.failed = failure_is_noted(self._store, self._directory)
        try:
            if self.failed:
                self.repair()
            elif self._config.wait_for_sync and unsynced:
                for segment in unsynced:
                    segment.file.sync()
                self._durability.sync_directories()
                for segment in unsynced:
                    segment.synced_bytes, segment.synced_offset = segment.size, segment.next_offset
        except (StorageFailed, DamagedLog):  # an answer, not dropped: the log is open, failed, and can be read
            self.failed = True
            note_failure(self._store, self._directory)
            if self._config.wait_for_sync and unsynced:
                self.high_watermark = max(self.log_start, unsynced[0].synced_offset)

    @property
    def config(self) -> LogConfig:
        """The settings in force; assign another LogConfig to change them."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segments.index_interval_bytes = config.index_interval_bytes
        if not config.wait_for_sync and not self.failed:
            self.high_watermark = self.log_end

    def append(self, batch: memoryview | bytearray, *, origin: Origin, now_ms: int) -> Appended:
        """Append exactly one batch, or raise a LogError with a code and leave everything as it was.

        Base offset and leader epoch are set in the caller's buffer, unless it comes from a replica. Returns when the
        bytes are written, not when they are durable: acknowledge acks=all when `high_watermark` has passed them.
        """
        config = self._config
        header = admit(batch, origin, config)
        try:
            return self._append(batch, header, origin, now_ms)
        except StorageFailed:
            self._producers.expect(header)
            raise

    def _append(self, batch: memoryview | bytearray, header: BatchHeader, origin: Origin, now_ms: int) -> Appended:
        if self.failed or self._tail_is_dirty:
            self._refuse_or_clean_tail()
        config = self._config
        base_offset = self.log_end
        timestamp = header.max_timestamp
        epoch = self.leader_epoch
        append_time = -1
        if origin is Origin.REPLICA:
            epoch = header.leader_epoch
            if header.base_offset != base_offset:
                raise BatchRefused(
                    f"a replica's batch has offset {header.base_offset} where {base_offset} comes next",
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                )
        else:
            known = self._producers.check(header) if header.producer_id >= 0 else None
            if known is not None:
                stamped = known.timestamp if config.timestamp_type == "LogAppendTime" else -1
                return Appended(known.base_offset, known.last_offset, stamped, duplicate=True)
            patch(batch, base_offset, epoch)
            if config.timestamp_type == "LogAppendTime":
                stamp_append_time(batch, header.attributes, now_ms)
                append_time = timestamp = now_ms
        next_offset = base_offset + header.last_offset_delta + 1
        self._write(batch, next_offset, timestamp, now_ms)
        if header.producer_id >= 0 and header.base_sequence >= 0:
            self._producers.record(header, base_offset, timestamp, now_ms)
        if epoch > self._epochs.latest:
            self._epochs.observe(epoch, base_offset)
        self.log_end = next_offset
        if not config.wait_for_sync:
            self.high_watermark = next_offset
        return Appended(base_offset, next_offset - 1, append_time, duplicate=False)

    def _write(self, batch: memoryview | bytearray, next_offset: int, timestamp: int, now_ms: int) -> None:
        """Write a batch behind the last one of the active segment, or of a new one."""
        segment = self._segments.active
        size = len(batch)
        if segment.size == 0:
            segment.first_append_ms = now_ms
        elif (
            segment.size + size > self._config.segment_bytes
            or self._must_roll
            or next_offset - segment.base_offset > _RELATIVE_OFFSET_MAX
            or self._is_old(segment, now_ms)
        ):
            segment = self._roll(now_ms)
        index = segment.index
        if index is None:
            index = self._segments.rows_for_append(segment)
        try:
            segment.file.write_at(batch, segment.size)
        except StorageFailed:
            self._tail_is_dirty = True
            self._clean_tail_if_possible()
            raise
        segment.extend(index, size, next_offset, timestamp, self._config.index_interval_bytes)

    def read(self, offset: int, bytes_max: int, *, limit: int, at_least_one: bool) -> bytes | memoryview:
        """Read whole batches from the one that holds `offset` on, all of them below the offset `limit`.

        Nothing (`b""`) at the limit, or when the first batch is larger than `bytes_max` and not `at_least_one`. One
        segment at a time: there may be more after what is given. Raises OffsetOutOfRange outside log_start and
        log_end, DamagedLog where the stored bytes are not what was written.
        """
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRange(offset, self.log_start, self.log_end)
        if offset >= limit or offset == self.log_end:
            return b""
        segment = self._segments.holding(offset)
        rows = self._segments.rows(segment)
        end = segment.size
        if limit < segment.next_offset:
            mark = self._watermark_mark
            known = mark.segment is segment and mark.next_offset == limit
            end = mark.size if known else position_of(segment, rows, limit)
        return read_batches(segment, rows, offset, bytes_max, end, at_least_one=at_least_one)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Give (timestamp, offset) of the first record with this or a larger timestamp below the high watermark.

        Reads and decompresses; may run in another thread.
        """
        segments = self._segments
        return timestamps.first_at_or_after(
            segments.all, segments.rows, timestamp_ms, self.log_start, self.high_watermark
        )

    def max_timestamp(self) -> tuple[int, int] | None:
        """Give (timestamp, offset) of the record with the largest timestamp below the high watermark (KIP-734)."""
        segments = self._segments
        return timestamps.largest(segments.all, segments.rows, self.log_start, self.high_watermark)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Give the largest epoch not above this one and the offset where it ends; (-1, -1) when it is not known."""
        return self._epochs.end_offset(leader_epoch, self.leader_epoch, self.log_end)

    def delete_records(self, before: int) -> int:
        """Raise log_start to `before` and give it; the caller stores it.

        Segments wholly below are removed, those of which no snapshot is stored yet at the end of the next sync.
        """
        if before > self.high_watermark or before < 0:
            raise OffsetOutOfRange(before, self.log_start, self.high_watermark)
        if before > self.log_start:
            self.log_start = before
            self._remove_below_start()
        return self.log_start

    def enforce_retention(self, now_ms: int) -> list[Removed]:
        """Remove segments that are too old or too many, and forget producers that have been silent for a day."""
        self._producers.expire(now_ms)
        due = due_for_removal(self._segments.all, self._config, self.high_watermark, now_ms)
        removable = self._durability.removable([segment for segment, _ in due])
        if removable:
            self.log_start = max(self.log_start, removable[-1].next_offset)
            self._remove_below_start()
        return [Removed(s.base_offset, s.next_offset, s.size, reason) for s, reason in due[: len(removable)]]

    def roll_if_old(self, now_ms: int) -> bool:
        """Begin a new segment if the active one has records and was begun `segment_ms` ago; say whether it was done."""
        active = self._segments.active
        if self.failed or not active.size or not self._is_old(active, now_ms):
            return False
        self._roll(now_ms)
        return True

    def begin_sync(self, *, sealed_only: bool = False) -> SyncJob | None:
        """Note what is to be made durable; None when all is, or when the partition has failed.

        The caller runs the job, in any thread, and then calls `end_sync`; one job at a time. With `sealed_only` the
        active segment is left to the operating system: enough, under `os`, to keep the scan at start short.
        """
        if self.failed:
            return None
        return self._durability.begin(with_active=not sealed_only, checkpoint_bytes=self._config.checkpoint_bytes)

    def end_sync(self, job: SyncJob, error: Exception | None) -> None:
        """Take over what a job has done: the high watermark rises, or the partition fails until `repair`."""
        self.failed = self.failed or error is not None
        self._durability.end(job, error)
        if error is None and self._config.wait_for_sync and job.end_offset > self.high_watermark:
            self.high_watermark = job.end_offset
            if job.marks:
                self._watermark_mark = job.marks[-1]
        try:
            self._remove_below_start()
        except StorageFailed:
            # What is due for removal stays due: it is tried again at the next sync or look at retention.
            self.removal_failures += 1

    def repair(self) -> None:
        """Write the tail that a failed sync may have lost into new files; appends resume, nothing else changes.

        Blocks for several syncs. Raises StorageFailed or DamagedLog when that fails too; the partition stays failed.
        """
        if not self.failed:
            return
        lost = self._segments.unsynced()
        copies = rewrite_tails(self._store, self._directory, lost, self._config.index_interval_bytes)
        segments, shortened = splice(self._segments.all, dict(zip(lost, copies, strict=True)), self._segments.rows)
        self._untrimmed += shortened
        self._segments.install(segments)
        self._durability.look_again()
        while self._untrimmed:
            cut_back(self._untrimmed[-1])
            self._untrimmed.pop()
        self._durability.sync_directories()
        forget_failure(self._store, self._directory)
        self.failed = self._tail_is_dirty = False
        self.high_watermark = self.log_end
        self._watermark_mark = Mark(self._segments.active, self._segments.active.size, self.log_end)

    def close(self, *, clean: bool) -> None:
        """Close the files. A clean close syncs and writes index and snapshot first: the next open scans nothing."""
        try:
            if clean and not self.failed:
                self._checkpoint_all()
        finally:
            self._segments.close()

    def _checkpoint_all(self) -> None:
        self._durability.want_snapshot(self.log_end, self._producers, self._epochs)
        job = self._durability.begin(with_active=True, checkpoint_bytes=1)
        if job is None:
            return
        try:
            job.run()
        except StorageFailed as error:
            self.end_sync(job, error)
            raise
        self.end_sync(job, None)
        if job.checkpoint_error is not None:
            raise job.checkpoint_error

    def statistics(self) -> LogStatistics:
        """Count."""
        segments = self._segments.all
        return LogStatistics(
            self.log_start,
            self.high_watermark,
            self.log_end,
            self.leader_epoch,
            sum(segment.size for segment in segments),
            sum(segment.size - segment.synced_bytes for segment in segments),
            len(segments),
            len(self._producers),
            self.failed,
            self._durability.checkpoint_failures,
        )

    def check_invariants(self) -> None:
        """Assert what must hold after every call."""
        self._segments.check_invariants()
        assert self._segments.active.next_offset == self.log_end
        assert 0 <= self.log_start <= self.high_watermark <= self.log_end
        assert self._segments.start <= self.log_start
        assert all(segment in self._segments.all for segment in self._durability.unsettled)

    def _is_old(self, segment: Segment, now_ms: int) -> bool:
        if segment.first_append_ms < 0:  # opened, not begun, by this process: go by its first batch
            data = segment.file.read_at(0, HEADER_BYTES)
            first_ms = read_header(data).max_timestamp if len(data) == HEADER_BYTES else -1
            segment.first_append_ms = min(now_ms, first_ms) if first_ms >= 0 else now_ms
        return now_ms - segment.first_append_ms >= self._config.segment_ms

    def _roll(self, now_ms: int) -> Segment:
        """Begin a new segment, after the names of the earlier ones are durable: a crash must not leave only later ones.

        Once tried it has to be done: the file of a failed try says that a segment begins at this offset, and recovery
        would end the one before it here, with all that had been appended to it since.
        """
        self._durability.sync_directories()
        self._must_roll = True
        path = segment_path(self._directory, self.log_end)
        segment = Segment(path, self.log_end, self._store.create(path + LOG_SUFFIX))
        segment.first_append_ms = now_ms
        self._durability.seal(self._segments.active, self.log_end, self._producers, self._epochs)
        self._segments.replace([*self._segments.all, segment])
        self._must_roll = False
        return segment

    def _refuse_or_clean_tail(self) -> None:
        if self.failed:
            raise StorageFailed(f"a sync of {self._directory} failed: writes are refused until its tail is rewritten")
        active = self._segments.active
        active.file.truncate(active.size)
        self._tail_is_dirty = False

    def _clean_tail_if_possible(self) -> None:
        try:
            self._refuse_or_clean_tail()
        except StorageFailed:
            return  # stays marked: the next append tries again and is refused if it cannot

    def _remove_below_start(self) -> None:
        """Forget segments below log_start at once; their files stay until a sync that may be using them has ended."""
        below = [segment for segment in self._segments.all[:-1] if segment.next_offset <= self.log_start]
        removable = self._durability.removable(below)
        if removable:
            self._segments.doom(removable)
            self._durability.look_again()
        if self._durability.job is None:
            self._segments.remove_doomed()
