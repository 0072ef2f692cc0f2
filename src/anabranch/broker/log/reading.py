"""Find and read whole batches of one segment: what a fetch costs.

One bisection in the rows gives a batch at most an index interval before the wanted one, one `read_at` brings the chunk,
a short walk over headers finds its start, one more bisection and walk its end. Batches in the middle are not looked
at, unless the chunk holds bytes that this process has neither written nor checked: then each CRC and each offset is
compared, once. Bytes that fail are never given out; what is good before them is.
"""

from struct import Struct

from anabranch.broker.log.errors import DamagedLog
from anabranch.broker.log.index import Index
from anabranch.broker.log.segment import Segment
from anabranch.broker.wire.batch import HEADER_BYTES, PREFIX_BYTES, check_batch
from anabranch.broker.wire.errors import WireError

_STEP = Struct(">qi11xi")
"""Base offset, length, last offset delta: what a walk needs of a header."""

_SLACK_BYTES = 4096 + HEADER_BYTES
"""Read beyond what was asked for: a row is up to an index interval before the wanted batch."""


def read_batches(
    segment: Segment, rows: Index, offset: int, bytes_max: int, end: int, *, at_least_one: bool
) -> bytes | memoryview:
    """Read from the batch that holds `offset` on, whole batches up to `bytes_max` and not beyond position `end`."""
    origin, expected = _row(segment, rows, rows.row_for_offset(offset - segment.base_offset))
    bytes_max = max(bytes_max, 0)
    while True:
        data = segment.file.read_at(origin, max(0, min(bytes_max + _SLACK_BYTES, end - origin)))
        start, expected, size = _find_start(data, expected, offset)
        if size:
            break
        if start == 0:
            raise DamagedLog(f"{segment.log_path} holds no batch for offset {offset} at position {origin}")
        origin += start
    if size > bytes_max and not at_least_one:
        return b""
    if start + size > len(data):
        if origin + start + size > end:
            raise DamagedLog(f"{segment.log_path} is too short for the batch at position {origin + start}")
        origin, start = origin + start, 0
        data = segment.file.read_at(origin, size)
    stop = _find_stop(rows, data, origin, start, min(origin + start + max(size, bytes_max), end))
    if not segment.is_verified(origin + start, origin + stop):
        stop = start + _verify(segment, memoryview(data)[start:stop], origin + start, expected)
    return data if start == 0 and stop == len(data) else memoryview(data)[start:stop]


def position_of(segment: Segment, rows: Index, offset: int) -> int:
    """Give the position of the first batch that does not end at or below `offset`, or the segment's size."""
    position, expected = _row(segment, rows, rows.row_for_offset(offset - segment.base_offset))
    while position < segment.size:
        data = segment.file.read_at(position, min(_SLACK_BYTES, segment.size - position))
        start, expected, size = _find_start(data, expected, offset)
        position += start
        if size:
            return position
        if start == 0:
            raise DamagedLog(f"{segment.log_path} holds no batch at position {position}")
    return segment.size


def _row(segment: Segment, rows: Index, row: int) -> tuple[int, int]:
    """Give position and offset of a row; a segment without rows starts at its start."""
    if not len(rows):
        return 0, segment.base_offset
    return rows.positions[row], segment.base_offset + rows.offsets[row]


def _find_start(data: bytes, expected: int, offset: int) -> tuple[int, int, int]:
    """Walk to the batch that holds `offset`: (position in data, its offset, its size). Size 0: not in these bytes."""
    position = 0
    last = len(data) - HEADER_BYTES
    while position <= last:
        base, length, delta = _STEP.unpack_from(data, position)
        if base != expected or length < HEADER_BYTES - PREFIX_BYTES or delta < 0:
            raise DamagedLog(f"a batch with offset {base} stands where {expected} comes next")
        if base + delta >= offset:
            return position, expected, length + PREFIX_BYTES
        position += length + PREFIX_BYTES
        expected = base + delta + 1
    return position, expected, 0


def _find_stop(rows: Index, data: bytes, origin: int, start: int, end: int) -> int:
    """Give where the last batch ends that lies whole in the data and below the position `end`."""
    limit = min(end - origin, len(data))
    stop = max(start, rows.positions[rows.row_for_position(origin + limit)] - origin if len(rows) else 0)
    while stop + PREFIX_BYTES <= limit:
        length = int.from_bytes(data[stop + 8 : stop + PREFIX_BYTES], "big", signed=True)
        if length < HEADER_BYTES - PREFIX_BYTES or stop + length + PREFIX_BYTES > limit:
            break
        stop += length + PREFIX_BYTES
    return stop


def _verify(segment: Segment, data: memoryview, origin: int, expected: int) -> int:
    """Check every batch; give how many bytes are good. Raises DamagedLog when the first batch is bad."""
    position = 0
    while position < len(data):
        try:
            header = check_batch(data, position)
            if header.base_offset != expected:
                raise DamagedLog(f"a batch with offset {header.base_offset} stands where {expected} comes next")
        except (WireError, DamagedLog) as error:
            if position == 0:
                raise DamagedLog(f"{segment.log_path} is damaged at position {origin}: {error}") from error
            break
        position += header.size
        expected = header.next_offset
    segment.mark_verified(origin, origin + position)
    return position
