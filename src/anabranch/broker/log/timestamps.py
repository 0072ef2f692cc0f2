"""Find records by time. Rows lead to the batch, its records are decompressed: not for the fast path.

Both functions look only at what they are given and change nothing but caches, so they may run in another thread while
the log is appended to: everything below the high watermark stays as it is, unless retention removes it under their
hands, which is answered as a storage error and asked again.
"""

from collections.abc import Callable, Sequence

from anabranch.broker.log.errors import DamagedLog
from anabranch.broker.log.index import Index
from anabranch.broker.log.segment import Segment
from anabranch.broker.log.walk import BatchWalk
from anabranch.broker.wire.batch import BatchHeader, check_batch
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.records import iterate_records

Rows = Callable[[Segment], Index]


def first_at_or_after(
    segments: Sequence[Segment], rows: Rows, timestamp_ms: int, log_start: int, limit: int
) -> tuple[int, int] | None:
    """Give (timestamp, offset) of the first record with this or a larger timestamp between log_start and limit."""
    for segment in segments:
        if segment.base_offset >= limit:
            return None
        if segment.max_timestamp < timestamp_ms or segment.next_offset <= log_start:
            continue
        found = _first_in_segment(segment, rows(segment), timestamp_ms, log_start, limit)
        if found is not None:
            return found
    return None


def largest(segments: Sequence[Segment], rows: Rows, log_start: int, limit: int) -> tuple[int, int] | None:
    """Give (timestamp, offset) of the first of the records with the largest timestamp between log_start and limit."""
    top = -1
    for segment in segments:
        if segment.base_offset >= limit or segment.next_offset <= log_start or segment.max_timestamp <= top:
            continue
        if segment.base_offset >= log_start and segment.next_offset <= limit:
            top = segment.max_timestamp
        else:
            top = max(top, _largest_in_part(segment, rows(segment), log_start, limit))
    return first_at_or_after(segments, rows, top, log_start, limit) if top >= 0 else None


def _first_in_segment(
    segment: Segment, index: Index, timestamp_ms: int, log_start: int, limit: int
) -> tuple[int, int] | None:
    walk = _walk_from_row(segment, index, index.row_for_timestamp(timestamp_ms))
    for _, header in walk:
        if header.next_offset > limit:
            return None
        if header.max_timestamp < timestamp_ms or header.next_offset <= log_start:
            continue
        found = _first_in_batch(header, walk.batch(header), timestamp_ms, log_start)
        if found is not None:
            return found
    _refuse_damage(segment, walk, limit)
    return None


def _first_in_batch(
    header: BatchHeader, batch: memoryview, timestamp_ms: int, log_start: int
) -> tuple[int, int] | None:
    try:
        check_batch(batch)
    except WireError as error:
        raise DamagedLog(f"the batch at offset {header.base_offset} is damaged: {error}") from error
    try:
        for record in iterate_records(batch):
            if record.timestamp >= timestamp_ms and record.offset >= log_start:
                return record.timestamp, record.offset
    except WireError:
        # A good CRC around records that cannot be read: a client wrote it so. The batch's start skips nothing.
        return header.max_timestamp, max(header.base_offset, log_start)
    return None


def _largest_in_part(segment: Segment, index: Index, log_start: int, limit: int) -> int:
    """Find the largest timestamp in a segment of which only a part counts: the first or the last one."""
    row = 0
    if segment.base_offset >= log_start:  # all before the row counts, and the row knows their largest timestamp
        row = index.row_for_offset(limit - 1 - segment.base_offset)
    top = index.timestamps[row] if len(index) else -1
    walk = _walk_from_row(segment, index, row)
    for _, header in walk:
        if header.next_offset > limit:
            return top
        if header.base_offset >= log_start:
            top = max(top, header.max_timestamp)
        elif header.next_offset > log_start:
            top = max(top, _largest_in_batch(walk.batch(header), log_start))
    _refuse_damage(segment, walk, limit)
    return top


def _largest_in_batch(batch: memoryview, log_start: int) -> int:
    try:
        return max((record.timestamp for record in iterate_records(batch) if record.offset >= log_start), default=-1)
    except WireError:
        return -1


def _walk_from_row(segment: Segment, index: Index, row: int) -> BatchWalk:
    position, offset = (index.positions[row], index.offsets[row]) if len(index) else (0, 0)
    return BatchWalk(segment.file, position, segment.size, segment.base_offset + offset, check_crc=False)


def _refuse_damage(segment: Segment, walk: BatchWalk, limit: int) -> None:
    if walk.next_offset < min(limit, segment.next_offset):
        raise DamagedLog(
            f"{segment.log_path} is damaged at position {walk.position}: {walk.fault or 'it is too short'}"
        )
