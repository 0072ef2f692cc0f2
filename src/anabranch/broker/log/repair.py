"""Save the tail of a partition after a failed fdatasync, by writing it anew.

After the failure the kernel may have dropped the unsynced pages and marked them clean: they can still be read, and a
second fdatasync would succeed, and nothing of it would be on the disk. So the tail is read back, each CRC is checked,
and it is written into files with fresh inodes:

1. Copy the unsynced part of each segment into a temporary file and sync it. A failure up to here changes nothing.
2. Rename each to its final name, `<first offset of the tail>.log`. Where nothing of the old segment was synced this
   replaces the old file; otherwise the tail becomes a segment of its own.
3. Sync the folder. From here on the new files are the log.
4. Cut each old segment back to its synced part and sync it.

A crash between 2 and 4 leaves an old segment that overlaps the next one. Recovery ends a segment where the next begins.
"""

from collections.abc import Callable

from anabranch.broker.log.errors import DamagedLog, StorageFailed
from anabranch.broker.log.index import Index
from anabranch.broker.log.segment import LOG_SUFFIX, Segment, segment_path
from anabranch.broker.log.store import File, Store
from anabranch.broker.log.walk import CHUNK_BYTES, BatchWalk

TEMPORARY_SUFFIX = ".tmp"


def rewrite_tails(store: Store, directory: str, segments: list[Segment], interval: int) -> list[Segment]:
    """Do steps 1 to 3 for segments with unsynced bytes; give the new segments, one for each."""
    copies = [_copy_tail(store, directory, segment, interval) for segment in segments]
    for copy in copies:
        copy.file.close()
        store.rename(copy.log_path + TEMPORARY_SUFFIX, copy.log_path)
    store.sync_directory(directory)
    for copy in copies:
        copy.file = store.open(copy.log_path)
    return copies


def splice(
    segments: list[Segment], copies: dict[Segment, Segment], rows: Callable[[Segment], Index]
) -> tuple[list[Segment], list[Segment]]:
    """Give the segments with the copies in the place of the lost tails, and those of them that have to be cut back."""
    spliced = []
    shortened = []
    for segment in segments:
        copy = copies.get(segment)
        if copy is not None and segment.synced_bytes:
            segment.index = rows(segment)
            segment.index.cut(segment.synced_bytes)
            segment.size, segment.next_offset = segment.synced_bytes, segment.synced_offset
            shortened.append(segment)
        if copy is None or segment.synced_bytes:
            spliced.append(segment)
        if copy is not None:
            spliced.append(copy)
    return spliced, shortened


def cut_back(segment: Segment) -> None:
    """Do step 4 for one segment, whose size is already that of its synced part."""
    segment.file.truncate(segment.size)
    segment.file.sync()


def _copy_tail(store: Store, directory: str, segment: Segment, interval: int) -> Segment:
    path = segment_path(directory, segment.synced_offset)
    file = store.create(path + LOG_SUFFIX + TEMPORARY_SUFFIX)
    try:
        copy = Segment(path, segment.synced_offset, file)
        index = Index()
        copy.index = index
        _copy_batches(segment, copy, index, interval)
        file.sync()
    except (StorageFailed, DamagedLog):
        file.close()
        store.remove(path + LOG_SUFFIX + TEMPORARY_SUFFIX)
        raise
    copy.first_append_ms = segment.first_append_ms
    copy.synced_bytes = copy.size
    copy.synced_offset = copy.next_offset
    return copy


def _copy_batches(segment: Segment, copy: Segment, index: Index, interval: int) -> None:
    walk = BatchWalk(segment.file, segment.synced_bytes, segment.size, segment.synced_offset, check_crc=True)
    buffer = bytearray()
    written = 0
    for _, header in walk:
        buffer += walk.batch(header)
        copy.extend(index, header.size, header.next_offset, header.max_timestamp, interval)
        if len(buffer) >= CHUNK_BYTES:
            written = _flush(copy.file, buffer, written)
    if walk.fault is not None:
        raise DamagedLog(f"the unsynced tail of {segment.log_path} is lost at position {walk.position}: {walk.fault}")
    _flush(copy.file, buffer, written)


def _flush(file: File, buffer: bytearray, position: int) -> int:
    file.write_at(buffer, position)
    position += len(buffer)
    buffer.clear()
    return position
