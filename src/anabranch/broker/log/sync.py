"""Make a partition's bytes durable, off the loop: what one sync covers, in which order.

1. `PartitionLog.begin_sync` notes, on the loop, which files have unsynced bytes and how far each of them goes.
2. `SyncJob.run`, in any thread: sealed segments in order, then the active one, then the folder with the new names. Only
   when all of it has succeeded are snapshot and index files written: an index file promises that its segment and
   *everything before it* was durable.
3. `PartitionLog.end_sync`, on the loop again: the high watermark rises to where the log ended in step 1.

Appends go on meanwhile. A failed sync fails the partition; a failed index or snapshot does not: they only shorten the
start, and the next job tries again.
"""

from typing import NamedTuple

from anabranch.broker.log.errors import StorageFailed
from anabranch.broker.log.index import Index, encode_index
from anabranch.broker.log.segment import Segment
from anabranch.broker.log.snapshot import KEPT, snapshot_name
from anabranch.broker.log.store import Store


class Mark(NamedTuple):
    """How far a segment is covered by a job."""

    segment: Segment
    size: int
    next_offset: int


class Checkpoint(NamedTuple):
    """An index file to be written: the rows as they were, though more may be appended meanwhile."""

    segment: Segment
    rows: Index
    row_count: int
    size: int
    next_offset: int
    max_timestamp: int


class SyncJob:
    """One group sync of one partition; see the module's text for the steps."""

    def __init__(self, store: Store, directory: str, marks: list[Mark], end_offset: int) -> None:
        self._store = store
        self._directory = directory
        self.marks = marks
        self.end_offset = end_offset
        """All below it is durable when the job has succeeded."""
        self.directories: tuple[str, ...] = ()
        self.checkpoints: list[Checkpoint] = []
        self.snapshot: tuple[int, bytes] | None = None
        self.snapshots: list[int] = []
        """Offsets of the snapshot files that exist, oldest first; the job's own is added to it."""
        self.checkpoint_error: StorageFailed | None = None

    def run(self) -> None:
        """Do it; blocks, in any thread. Raises StorageFailed when the bytes may not be durable."""
        for mark in self.marks:
            mark.segment.file.sync()
        for directory in self.directories:
            self._store.sync_directory(directory)
        try:
            self._write_snapshot()
            for checkpoint in self.checkpoints:
                write_index(self._store, checkpoint)
        except StorageFailed as error:
            self.checkpoint_error = error

    def _write_snapshot(self) -> None:
        if self.snapshot is None:
            return
        offset, data = self.snapshot
        self._store.replace_file(f"{self._directory}/{snapshot_name(offset)}", data)
        if offset not in self.snapshots:
            self.snapshots.append(offset)
        while len(self.snapshots) > KEPT:
            self._store.remove(f"{self._directory}/{snapshot_name(self.snapshots[0])}")
            del self.snapshots[0]


def checkpoint_of(segment: Segment, index: Index) -> Checkpoint:
    """Note what an index file for the segment as it is now would say."""
    return Checkpoint(segment, index, len(index), segment.size, segment.next_offset, segment.max_timestamp)


def write_index(store: Store, checkpoint: Checkpoint) -> None:
    """Write the index file; only after the segment was synced up to the checkpoint's size."""
    data = encode_index(
        checkpoint.rows, checkpoint.row_count, checkpoint.size, checkpoint.next_offset, checkpoint.max_timestamp
    )
    store.replace_file(checkpoint.segment.index_path, data)
