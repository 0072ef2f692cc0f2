"""What of a partition is not durable yet, and the bookkeeping of the sync jobs that make it so.

A sealed segment is *unsettled* until its bytes are synced and its index file is written. One job at a time: when a sync
fails, the success of another one that ran beside it would prove nothing.

A failed sync is noted in a file beside the segments. Without it a restarted process would find the lost bytes in the
operating system's memory, sync them with success, and take them for durable. If even the note cannot be written, only
the process that saw the failure knows of it.
"""

from anabranch.broker.log.envelope import seal
from anabranch.broker.log.epochs import LeaderEpochs
from anabranch.broker.log.errors import StorageFailed
from anabranch.broker.log.producers import Producers
from anabranch.broker.log.segment import Segment
from anabranch.broker.log.segments import Segments
from anabranch.broker.log.snapshot import encode_snapshot
from anabranch.broker.log.store import Store
from anabranch.broker.log.sync import Checkpoint, Mark, SyncJob, checkpoint_of
from anabranch.core.errors import InternalError

FAILURE_NAME = "sync-failed"
_FAILURE = seal(b"ABSF", 1, b"")


class Durability:
    """The unsettled segments, unsynced folders and unwritten snapshot of one partition."""

    def __init__(self, store: Store, directory: str, segments: Segments, snapshots: list[int]) -> None:
        self._store = store
        self._directory = directory
        self._segments = segments
        self._snapshots = snapshots
        self.unsettled: list[Segment] = []
        self.directories: tuple[str, ...] = ()
        """Folders with names that are not synced, the partition's own first."""
        self._snapshot: tuple[int, bytes] | None = None
        self.job: SyncJob | None = None
        self.checkpoint_failures = 0
        self._checkpoints_fail = False
        self.look_again()

    def look_again(self) -> None:
        """Find the unsettled ones among all segments, after open and after a change."""
        self.unsettled = [s for s in self._segments.all[:-1] if s.clean_bytes < s.size and not s.damaged]

    def names_are_unsynced(self) -> None:
        """Note that nothing is known about the names of the partition's files and of the folders above them."""
        self.directories = _with_ancestors(self._directory)

    def sync_directories(self) -> None:
        """Sync the folders now."""
        for directory in self.directories:
            self._store.sync_directory(directory)
        self.directories = ()

    def seal(self, segment: Segment, log_end: int, producers: Producers, epochs: LeaderEpochs) -> None:
        """Take note of a roll: a sealed segment, a new name in the folder, and the state for a snapshot."""
        self._segments.rows_for_append(segment)
        self.unsettled.append(segment)
        self.directories = (self._directory,)  # a new tuple: no job under way covers the new name
        self._snapshot = (log_end, encode_snapshot(log_end, producers, epochs))

    def want_snapshot(self, log_end: int, producers: Producers, epochs: LeaderEpochs) -> None:
        """Have the next job write a snapshot of the state now, unless there is one or the log never had records."""
        if log_end and log_end not in self._snapshots:
            self._snapshot = (log_end, encode_snapshot(log_end, producers, epochs))

    def removable(self, segments: list[Segment]) -> list[Segment]:
        """Give those of the oldest segments that may be removed: those of which a stored snapshot knows the producers.

        If snapshots cannot be written, the disk is full and room matters more.
        """
        known = max(self._snapshots, default=0)
        return segments if self._checkpoints_fail else [s for s in segments if s.next_offset <= known]

    def begin(self, *, with_active: bool, checkpoint_bytes: int) -> SyncJob | None:
        """Make a job of all that is not durable; None when there is nothing."""
        if self.job is not None:
            raise InternalError("a sync of this partition is under way: call end_sync before the next begin_sync")
        if not with_active and not self.unsettled:
            return None
        active = self._segments.active
        segments = [*self.unsettled, active] if with_active else self.unsettled
        marks = [Mark(s, s.size, s.next_offset) for s in segments if s.synced_bytes < s.size]
        checkpoints = [checkpoint_of(segment, self._segments.rows(segment)) for segment in self.unsettled]
        if with_active and active.size - max(active.clean_bytes, 0) >= checkpoint_bytes:
            checkpoints.append(checkpoint_of(active, self._segments.rows(active)))
        if not marks and not checkpoints and not self.directories and self._snapshot is None:
            return None
        job = SyncJob(self._store, self._directory, marks, active.next_offset if with_active else active.base_offset)
        job.checkpoints = checkpoints
        job.directories = self.directories
        job.snapshot = self._snapshot
        job.snapshots = list(self._snapshots)
        self.job = job
        return job

    def end(self, job: SyncJob, error: Exception | None) -> None:
        """Take over what a job has made durable, or note that it failed."""
        if job is not self.job:
            raise InternalError("end_sync was called for a job that is not under way")
        self.job = None
        if error is not None:
            note_failure(self._store, self._directory)
            return
        for mark in job.marks:
            mark.segment.synced_bytes = max(mark.segment.synced_bytes, mark.size)
            mark.segment.synced_offset = max(mark.segment.synced_offset, mark.next_offset)
        if self.directories is job.directories:
            self.directories = ()
        self._snapshots = job.snapshots
        self._checkpoints_fail = job.checkpoint_error is not None
        if self._checkpoints_fail:
            self.checkpoint_failures += 1
            return
        if self._snapshot is job.snapshot:
            self._snapshot = None
        for checkpoint in job.checkpoints:
            self._settle(checkpoint)

    def _settle(self, checkpoint: Checkpoint) -> None:
        segment = checkpoint.segment
        segment.clean_bytes = checkpoint.size
        if segment in self.unsettled and segment.size == checkpoint.size:
            self.unsettled.remove(segment)
            self._segments.settle(segment, checkpoint.rows)


def failure_is_noted(store: Store, directory: str) -> bool:
    """Whether a sync has failed here and the tail has not been rewritten since."""
    return store.read_file(f"{directory}/{FAILURE_NAME}") is not None


def note_failure(store: Store, directory: str) -> None:
    """Write the note, if the disk takes it."""
    try:
        store.replace_file(f"{directory}/{FAILURE_NAME}", _FAILURE)
    except StorageFailed:
        return  # the caller is about to report the sync's own failure, which says the same


def forget_failure(store: Store, directory: str) -> None:
    """Remove the note after the tail was rewritten."""
    store.remove(f"{directory}/{FAILURE_NAME}")
    store.sync_directory(directory)


def _with_ancestors(directory: str) -> tuple[str, ...]:
    """Give a folder and those above it, up to the store's root."""
    parts = directory.split("/")
    return tuple("/".join(parts[:depth]) for depth in range(len(parts), -1, -1))
