"""Walk over the batches of a segment file from one position to another, and say where and why the good part ends.

A batch is good if its header is plausible (magic, length within the file), its offset is the one that comes next, and,
when asked for, its CRC matches. The offset must be compared because the CRC does not cover it. It must be *exactly* the
next one: this log has no holes yet. Compaction and replicas of compacted logs will need `>=` here, and here only.
"""

from collections.abc import Iterator

from anabranch.broker.log.store import File
from anabranch.broker.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    UnsupportedBatch,
    check_batch,
    read_header,
)

CHUNK_BYTES = 1024 * 1024


class BatchWalk:
    """Iterate over (position, header). Afterwards `position` and `next_offset` are where it ended, `fault` is why."""

    __slots__ = ("_check_crc", "_data", "_end", "_file", "_origin", "fault", "next_offset", "position")

    def __init__(self, file: File, position: int, end: int, next_offset: int, *, check_crc: bool) -> None:
        self._file = file
        self._end = end
        self._check_crc = check_crc
        self._data = memoryview(b"")
        self._origin = position
        self.position = position
        self.next_offset = next_offset
        self.fault: str | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        while self.position < self._end:
            try:
                header = self._checked()
            except (CorruptBatch, UnsupportedBatch) as error:
                self.fault = str(error)
                return
            yield self.position, header
            self.position += header.size
            self.next_offset = header.next_offset

    def batch(self, header: BatchHeader) -> memoryview:
        """Give the bytes of the batch that the walk stands at."""
        self._hold(header.size)
        at = self.position - self._origin
        return self._data[at : at + header.size]

    def _checked(self) -> BatchHeader:
        self._hold(HEADER_BYTES)
        at = self.position - self._origin
        header = read_header(self._data, at)
        if header.magic != 2 or header.length < HEADER_BYTES - 12 or header.last_offset_delta < 0:
            raise CorruptBatch(f"no batch starts here (magic {header.magic}, length {header.length})")
        if header.base_offset != self.next_offset:
            raise CorruptBatch(f"a batch has offset {header.base_offset} where {self.next_offset} comes next")
        if self.position + header.size > self._end:
            raise CorruptBatch(f"a batch of {header.size} bytes is torn: {self._end - self.position} are there")
        if self._check_crc:
            self._hold(header.size)
            check_batch(self._data, self.position - self._origin)
        return header

    def _hold(self, size: int) -> None:
        """Have at least `size` bytes from the position on in memory, unless the file ends before."""
        if len(self._data) - (self.position - self._origin) >= size:
            return
        wanted = min(max(size, CHUNK_BYTES), self._end - self.position)
        self._data = memoryview(self._file.read_at(self.position, wanted))
        self._origin = self.position
