"""The segments of a partition in order: find the one that holds an offset, add one, remove some.

Lists are replaced, never changed in place, so that a reader in another thread keeps a consistent view. Segments that
are removed while a sync job may be using their files are *doomed*: forgotten at once, their files removed later.
"""

from bisect import bisect_right
from itertools import pairwise

from anabranch.broker.log.index import Index, IndexCache
from anabranch.broker.log.segment import Segment, rows_of
from anabranch.broker.log.store import Store


class Segments:
    """At least one segment, the last of them active; each begins where the one before ends."""

    def __init__(self, store: Store, segments: list[Segment], cache: IndexCache, index_interval_bytes: int) -> None:
        self._store = store
        self._cache = cache
        self._doomed: list[Segment] = []
        self.index_interval_bytes = index_interval_bytes
        self.replace(segments)

    def replace(self, segments: list[Segment]) -> None:
        """Take these from now on."""
        self.all = segments
        self.active = segments[-1]
        self._bases = [segment.base_offset for segment in segments]

    @property
    def start(self) -> int:
        """The first offset of the first segment."""
        return self._bases[0]

    def holding(self, offset: int) -> Segment:
        """Give the segment that an offset belongs to; it is not below the first."""
        return self.all[bisect_right(self._bases, offset) - 1]

    def rows(self, segment: Segment) -> Index:
        """Give a segment's rows, from wherever they are."""
        return rows_of(segment, self._store, self._cache, self.index_interval_bytes)

    def rows_for_append(self, segment: Segment) -> Index:
        """Have the rows in the segment itself, where they can grow."""
        if segment.index is None:
            segment.index = self.rows(segment)
            self._cache.forget(segment.path)
        return segment.index

    def settle(self, segment: Segment, rows: Index) -> None:
        """Let go of the rows of a sealed segment: they are in its index file now, and in the cache for a while."""
        self._cache.put(segment.path, rows)
        segment.index = None

    def unsynced(self) -> list[Segment]:
        """Give those with bytes that are not durable."""
        return [segment for segment in self.all if segment.synced_bytes < segment.size]

    def doom(self, segments: list[Segment]) -> None:
        """Forget segments; `remove_doomed` removes their files."""
        self._doomed += segments
        self.replace([segment for segment in self.all if segment not in segments])

    def remove_doomed(self) -> None:
        """Remove oldest first and make each removal durable before the next.

        A crash that undid only some of them would leave a gap, and what is above a gap looks like the rest of a lost
        tail. One sync of the folder per segment is what it costs; a note of the new log_start would be cheaper for
        many, and could not be written on a full disk, where removing matters most.
        """
        while self._doomed:
            segment = self._doomed[0]
            segment.file.close()
            self._cache.forget(segment.path)
            self._store.remove(segment.index_path)
            self._store.remove(segment.log_path)
            self._store.sync_directory(segment.path.rpartition("/")[0])
            del self._doomed[0]

    def install(self, segments: list[Segment]) -> None:
        """Take rewritten segments in the place of others with the same offsets."""
        for segment in self.all:
            self._cache.forget(segment.path)
            if segment not in segments:
                segment.file.close()
        self.replace(segments)

    def close(self) -> None:
        """Close the files."""
        for segment in self.all:
            segment.file.close()
            self._cache.forget(segment.path)

    def check_invariants(self) -> None:
        """Assert what must hold after every call."""
        assert self.all[-1] is self.active
        assert self._bases == [segment.base_offset for segment in self.all]
        assert all(before.next_offset == after.base_offset for before, after in pairwise(self.all))
        for segment in self.all:
            assert -1 <= segment.clean_bytes <= segment.synced_bytes <= segment.size
            assert segment.base_offset <= segment.synced_offset <= segment.next_offset
            if segment.index is not None and len(segment.index):
                assert list(segment.index.positions) == sorted(set(segment.index.positions))
                assert segment.index.positions[-1] < segment.size
