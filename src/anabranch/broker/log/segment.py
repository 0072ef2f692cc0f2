"""One segment: a file of batches, and what this process knows of it.

Positions in a segment, each a byte count from its start, and what they promise:

    clean_bytes ≤ synced_bytes ≤ size      -1 for clean_bytes: no index file yet
    [0, clean_bytes)     an index file says: this was durable; not scanned at start, never cut
    [0, synced_bytes)    durable, as far as the disk can be believed
    [0, verified_below)  and [verified_from, size): CRC and offset checked or written by this process

Every segment but the last ends where the next begins: `next_offset` is the next segment's `base_offset`, also when
damage has taken its last batches. An offset below `next_offset` that no batch of the file holds is therefore damage.
"""

from anabranch.broker.log.index import Index, IndexCache, decode_rows
from anabranch.broker.log.store import File, Store
from anabranch.broker.log.walk import BatchWalk

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"


class Segment:
    """The state of one segment; see the module's text."""

    __slots__ = (
        "base_offset",
        "clean_bytes",
        "damaged",
        "file",
        "first_append_ms",
        "index",
        "max_timestamp",
        "next_offset",
        "path",
        "size",
        "synced_bytes",
        "synced_offset",
        "verified_below",
        "verified_from",
    )

    def __init__(self, path: str, base_offset: int, file: File) -> None:
        self.path = path
        """Without a suffix."""
        self.base_offset = base_offset
        self.file = file
        self.size = 0
        self.next_offset = base_offset
        self.max_timestamp = -1
        self.index: Index | None = Index()
        """None when the rows are in the index file and, perhaps, in the cache."""
        self.clean_bytes = -1
        self.synced_bytes = 0
        self.synced_offset = base_offset
        self.verified_below = 0
        self.verified_from = 0
        self.first_append_ms = -1
        self.damaged = False
        """Bytes are missing or unreadable below its clean point: no index file is written for it any more."""

    def __repr__(self) -> str:
        return f"<Segment {self.base_offset}..{self.next_offset} size={self.size} synced={self.synced_bytes}>"

    @property
    def log_path(self) -> str:
        """The file of batches."""
        return self.path + LOG_SUFFIX

    @property
    def index_path(self) -> str:
        """The index file."""
        return self.path + INDEX_SUFFIX

    def extend(self, index: Index, size: int, next_offset: int, max_timestamp: int, interval: int) -> None:
        """Take note of a batch at the end."""
        position = self.size
        positions = index.positions
        if not positions or position - positions[-1] >= interval:
            index.add(self.next_offset - self.base_offset, position, self.max_timestamp)
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        self.size = position + size
        self.next_offset = next_offset

    def is_verified(self, start: int, end: int) -> bool:
        """Whether all bytes between two positions have been checked."""
        return start >= self.verified_from or end <= self.verified_below

    def mark_verified(self, start: int, end: int) -> None:
        """Note that the bytes between two positions are good; only what adjoins the known part is remembered."""
        if start <= self.verified_below < end:
            self.verified_below = end
            if end >= self.verified_from:
                self.verified_from = 0


def segment_path(directory: str, base_offset: int) -> str:
    """Give the path of a segment without a suffix."""
    return f"{directory}/{base_offset:020d}"


def rows_of(segment: Segment, store: Store, cache: IndexCache, interval: int) -> Index:
    """Give the rows of a segment: from memory, the cache, the index file, or else made from its batches."""
    index = segment.index
    if index is not None:
        return index
    index = cache.get(segment.path)
    if index is None:
        index = decode_rows(store.read_file(segment.index_path), segment.index_path)
        if index is None:
            index = rebuild_rows(segment, interval)
        cache.put(segment.path, index)
    return index


def rebuild_rows(segment: Segment, interval: int) -> Index:
    """Make the rows from the headers of the batches, as far as they can be read."""
    index = Index()
    largest = -1
    for position, header in BatchWalk(segment.file, 0, segment.size, segment.base_offset, check_crc=False):
        if not index.positions or position - index.positions[-1] >= interval:
            index.add(header.base_offset - segment.base_offset, position, largest)
        largest = max(largest, header.max_timestamp)
    return index
