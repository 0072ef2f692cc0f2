"""The sparse index of one segment, and the file that is also the segment's clean point.

In memory it is three arrays with one row every `index_interval_bytes`: the offset (relative to the segment's base) and
the position of a batch, and the largest timestamp of all batches *before* it. Rows rise in all three columns, so
offset, position and time are each found by bisection and a short walk over batch headers. One file instead of Kafka's
two, because both are the same walk over the same batches (docs/decisions/0002-one-index-file.md).

The file is written only after the segment's bytes up to `valid_bytes` were synced, together with everything in earlier
segments. So its presence is a promise: what is below `valid_bytes` was durable once, is not scanned at start, and
damage found there is reported, never cut. Its head can be read alone; rows have a CRC of their own and are read when
they are first needed. Damaged rows are made again from the segment.
"""

import sys
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from struct import Struct
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from anabranch.broker.log.envelope import ENVELOPE_BYTES, seal, unseal

MAGIC = b"ABIX"
VERSION = 1
ROW_BYTES = 16
_HEAD = Struct("<QqqII")
HEAD_BYTES = ENVELOPE_BYTES + _HEAD.size


class CleanPoint(NamedTuple):
    """What the head of an index file promises about its segment."""

    valid_bytes: int
    next_offset: int
    max_timestamp: int
    row_count: int
    rows_crc: int


class Index:
    """The rows of one segment, in memory."""

    __slots__ = ("offsets", "positions", "timestamps")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")
        self.timestamps = array("q")

    def __len__(self) -> int:
        return len(self.positions)

    def add(self, relative_offset: int, position: int, largest_before: int) -> None:
        """Append a row."""
        self.offsets.append(relative_offset)
        self.timestamps.append(largest_before)
        self.positions.append(position)

    def row_for_offset(self, relative_offset: int) -> int:
        """Give the last row whose batch starts at or before the offset; 0 when there is none."""
        return max(0, bisect_right(self.offsets, relative_offset) - 1)

    def row_for_position(self, position: int) -> int:
        """Give the last row at or before a position; 0 when there is none."""
        return max(0, bisect_right(self.positions, position) - 1)

    def row_for_timestamp(self, timestamp: int) -> int:
        """Give the row from which on the first batch with this or a larger timestamp is found."""
        return max(0, bisect_left(self.timestamps, timestamp) - 1)

    def cut(self, position: int) -> None:
        """Forget the rows at and above a position."""
        count = bisect_left(self.positions, position)
        del self.positions[count:], self.offsets[count:], self.timestamps[count:]


def encode_index(index: Index, row_count: int, valid_bytes: int, next_offset: int, max_timestamp: int) -> bytes:
    """Encode the first `row_count` rows as a file; safe while another thread appends rows."""
    columns = (index.offsets[:row_count], index.positions[:row_count], index.timestamps[:row_count])
    rows = b"".join(_little(column).tobytes() for column in columns)
    head = _HEAD.pack(valid_bytes, next_offset, max_timestamp, row_count, crc32c(rows))
    return seal(MAGIC, VERSION, head) + rows


def decode_clean_point(data: bytes | None, path: str) -> CleanPoint | None:
    """Read the head of an index file; None when it is absent, damaged or cannot be right."""
    body = unseal(MAGIC, VERSION, None if data is None else data[:HEAD_BYTES], path)
    if body is None or len(body) != _HEAD.size:
        return None
    return CleanPoint._make(_HEAD.unpack(body))


def decode_rows(data: bytes | None, path: str) -> Index | None:
    """Read the rows of an index file; None when it is absent or damaged."""
    clean = decode_clean_point(data, path)
    if data is None or clean is None:
        return None
    rows = memoryview(data)[HEAD_BYTES:]
    if len(rows) != clean.row_count * ROW_BYTES or crc32c(rows) != clean.rows_crc:
        return None
    index = Index()
    edge = 4 * clean.row_count
    index.offsets.frombytes(rows[:edge])
    index.positions.frombytes(rows[edge : 2 * edge])
    index.timestamps.frombytes(rows[2 * edge :])
    for column in (index.offsets, index.positions, index.timestamps):
        _little(column)
    return index


def _little(column: "array[int]") -> "array[int]":
    """Swap in place on machines whose byte order is not the file's."""
    if sys.byteorder == "big":
        column.byteswap()
    return column


class IndexCache:
    """Rows of sealed segments, the least recently used ones forgotten beyond `bytes_max`. Thread-safe.

    One cache may serve all partitions of a broker. An index always fits: the one that was asked for last stays.
    """

    def __init__(self, bytes_max: int = 32 * 1024 * 1024) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, Index] = OrderedDict()

    def get(self, path: str) -> Index | None:
        """Give the rows kept for a segment."""
        with self._lock:
            index = self._indexes.get(path)
            if index is not None:
                self._indexes.move_to_end(path)
            return index

    def put(self, path: str, index: Index) -> None:
        """Keep a segment's rows, and forget others until the bound holds."""
        with self._lock:
            self._forget(path)
            self._indexes[path] = index
            self.bytes += len(index) * ROW_BYTES
            while self.bytes > self.bytes_max and len(self._indexes) > 1:
                self._forget(next(iter(self._indexes)))

    def forget(self, path: str) -> None:
        """Drop the rows of a segment that is gone."""
        with self._lock:
            self._forget(path)

    def _forget(self, path: str) -> None:
        index = self._indexes.pop(path, None)
        if index is not None:
            self.bytes -= len(index) * ROW_BYTES
