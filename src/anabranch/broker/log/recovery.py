"""Open a partition's folder after any kind of end: trust what is clean, scan what is not, cut what is torn.

The *clean point* of a folder is the last segment with a good index file. Syncs go in order and an index file is written
only after everything before it was synced, so all below the clean point was durable once:

- **Below it nothing is cut.** A segment that is shorter than its index file says, or that cannot be walked, keeps its
  place; its missing offsets are answered CORRUPT_MESSAGE and all others are served. CRCs are checked when it is read.
- **Above it is the tail**, written and perhaps never synced. Each batch is checked (CRC, offset). The first bad one
  ends the log: the rest of its segment is cut and later segments are removed. So is everything after a missing segment:
  what survives is always a prefix of what was written.
- **The last segment shorter than its own clean point** (somebody truncated it, or the disk lied): there is nothing to
  keep a place for, the log ends with its last whole batch. Its index file goes first, or it would vouch for what comes
  next.

Awkward cases. (1) Later segments are removed, and their removal synced, before the bad one is cut: a crash in between
finds the same bad batch again. (2) A segment that reaches into the next is the work of an interrupted repair: it ends
where the next begins. (3) Files that a crash left half written have a `.tmp` name and are removed. (4) When log_start
(stored by the caller) is above log_end, the tail above log_start is lost and the log starts anew at log_start: offsets
must not be given out twice. Segments wholly below log_start take no part in all this.

Producers and leader epochs come from the newest snapshot at or below the clean point; headers above it are replayed.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.epochs import LeaderEpochs
from anabranch.broker.log.index import HEAD_BYTES, CleanPoint, Index, decode_clean_point, decode_rows
from anabranch.broker.log.producers import Producers
from anabranch.broker.log.repair import TEMPORARY_SUFFIX
from anabranch.broker.log.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment, rebuild_rows, segment_path
from anabranch.broker.log.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from anabranch.broker.log.snapshot import decode_snapshot, snapshot_name
from anabranch.broker.log.store import Store
from anabranch.broker.log.walk import BatchWalk
from anabranch.broker.wire.batch import BatchHeader

_NAME_DIGITS = 20
_NO_LIMIT = 2**63


class Finding(NamedTuple):
    """Something in one segment: bytes that were scanned, cut, or that are missing or damaged."""

    path: str
    position: int
    bytes: int
    reason: str


@dataclass(slots=True)
class RecoveryReport:
    """What was found at open, for the caller to log."""

    scanned: list[Finding] = field(default_factory=list)
    cut: list[Finding] = field(default_factory=list)
    damaged: list[Finding] = field(default_factory=list)
    """Damage below the clean point: kept, and answered CORRUPT_MESSAGE."""
    snapshot_offset: int = -1
    replayed_batches: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing was cut and nothing is damaged."""
        return not self.cut and not self.damaged


@dataclass(slots=True)
class Recovered:
    """The state of a partition after recovery."""

    segments: list[Segment]
    producers: Producers
    epochs: LeaderEpochs
    snapshots: list[int]
    report: RecoveryReport


def recover(store: Store, directory: str, config: LogConfig, log_start: int, now_ms: int) -> Recovered:
    """Recover the folder, which exists; at least one segment is there afterwards."""
    return _Recovery(store, directory, config, now_ms).run(log_start)


class _Recovery:
    def __init__(self, store: Store, directory: str, config: LogConfig, now_ms: int) -> None:
        self._store = store
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._report = RecoveryReport()
        self._clean: dict[int, CleanPoint] = {}
        self._producers = Producers()
        self._epochs = LeaderEpochs()
        self._removed = False

    def run(self, log_start: int) -> Recovered:
        names = self._store.list_directory(self._directory)
        segments = self._open_segments(names)
        snapshots = sorted(_offsets(names, SNAPSHOT_SUFFIX))
        self._remove_leftovers(names, segments)
        dropped, segments = _split(segments, log_start)
        clean_points = [number for number, segment in enumerate(segments) if segment.base_offset in self._clean]
        clean_point = clean_points[-1] if clean_points else -1
        for number, segment in enumerate(segments[: max(clean_point, 0)]):
            self._keep(segment, segments[number + 1].base_offset)
        self._load_state(dropped, segments, clean_point, snapshots)
        self._drop(dropped)
        segments = self._scan_tail(segments, clean_point)
        segments = self._start_at(segments, log_start)
        snapshots = self._remove_future_snapshots(snapshots, segments[-1].next_offset)
        if self._removed:  # before the log grows: what came back would speak of other records
            self._store.sync_directory(self._directory)
        return Recovered(segments, self._producers, self._epochs, snapshots, self._report)

    def _open_segments(self, names: list[str]) -> list[Segment]:
        segments = []
        with_index = set(_offsets(names, INDEX_SUFFIX))
        for base_offset in sorted(_offsets(names, LOG_SUFFIX)):
            path = segment_path(self._directory, base_offset)
            segment = Segment(path, base_offset, self._store.open(path + LOG_SUFFIX))
            segment.size = segment.file.size()
            segments.append(segment)
            if base_offset in with_index:
                head = self._store.read_file(segment.index_path, HEAD_BYTES)
                clean = decode_clean_point(head, segment.index_path)
                if clean is not None and clean.next_offset >= base_offset:
                    self._clean[base_offset] = clean
        return segments

    def _drop(self, segments: list[Segment]) -> None:
        """Remove what is wholly below log_start, as `Segments.remove_doomed` does."""
        for segment in segments:
            self._remove(segment)
            self._store.sync_directory(self._directory)

    def _remove_leftovers(self, names: list[str], segments: list[Segment]) -> None:
        bases = {segment.base_offset for segment in segments}
        for name in names:
            orphan = name.endswith(INDEX_SUFFIX) and not set(_offsets([name], INDEX_SUFFIX)) <= bases
            if name.endswith(TEMPORARY_SUFFIX) or orphan:
                self._store.remove(f"{self._directory}/{name}")
                self._removed = True

    def _keep(self, segment: Segment, next_base: int) -> None:
        """Take over a segment below the clean point, whatever state it is in."""
        clean = self._clean.get(segment.base_offset)
        file_bytes = segment.size
        if clean is not None and clean.valid_bytes == file_bytes and clean.next_offset == next_base:
            _trust(segment, clean)
            return
        walk = self._extend(segment, file_bytes, next_base)
        segment.verified_from = segment.synced_bytes = segment.size
        if segment.next_offset < next_base:
            segment.damaged = True
            reason = f"offsets {segment.next_offset} to {next_base - 1} are missing: {walk.fault or 'it is too short'}"
            self._report.damaged.append(Finding(segment.log_path, segment.size, file_bytes - segment.size, reason))
        segment.synced_offset = segment.next_offset = next_base

    def _extend(self, segment: Segment, file_bytes: int, next_base: int) -> BatchWalk:
        """Make rows of all whole batches below `next_base`, without looking at CRCs."""
        segment.size = 0
        index = segment.index = Index()
        walk = BatchWalk(segment.file, 0, file_bytes, segment.base_offset, check_crc=False)
        for _, header in walk:
            if header.next_offset > next_base:
                break
            self._take(segment, index, header)
        return walk

    def _take(self, segment: Segment, index: Index, header: BatchHeader) -> None:
        interval = self._config.index_interval_bytes
        segment.extend(index, header.size, header.next_offset, header.max_timestamp, interval)

    def _load_state(
        self, dropped: list[Segment], segments: list[Segment], clean_point: int, snapshots: list[int]
    ) -> None:
        """Load the newest snapshot at or below the point from which on is scanned; replay what is between the two.

        Also what is about to be dropped is replayed, as far as it can be read: its records are gone, its producers not.
        """
        scan_offset = segments[0].base_offset if segments else 0
        if clean_point >= 0:
            last = segments[clean_point]
            scan_offset = self._clean[last.base_offset].next_offset
            if clean_point == len(segments) - 1 and self._clean[last.base_offset].valid_bytes > last.size:
                scan_offset = last.base_offset
        start = 0
        for offset in reversed(snapshots):
            path = f"{self._directory}/{snapshot_name(offset)}"
            state = decode_snapshot(self._store.read_file(path), path) if offset <= scan_offset else None
            if state is not None and state[0] == offset:
                start, self._producers, self._epochs = state
                self._report.snapshot_offset = offset
                break
        if start < min((segment.base_offset for segment in [*dropped, *segments[:1]]), default=0):
            self._producers = Producers()  # batches after the snapshot are gone: better unknown than out of date
        for segment in dropped:
            self._replay_segment(segment, segment.size, start)
        for segment in segments[: clean_point + 1]:
            if segment.base_offset < scan_offset and self._next_offset(segment) > start:
                self._replay_segment(segment, min(segment.size, self._clean_bytes(segment)), start)

    def _clean_bytes(self, segment: Segment) -> int:
        clean = self._clean.get(segment.base_offset)
        return segment.size if clean is None else clean.valid_bytes

    def _next_offset(self, segment: Segment) -> int:
        clean = self._clean.get(segment.base_offset)
        return segment.next_offset if clean is None else clean.next_offset

    def _replay_segment(self, segment: Segment, end: int, start: int) -> None:
        for _, header in BatchWalk(segment.file, 0, end, segment.base_offset, check_crc=False):
            if header.base_offset >= start:
                self._replay(header)

    def _replay(self, header: BatchHeader) -> None:
        """Note a batch that is in the log. Its producer counts as active now: its own timestamps may be of any age."""
        self._epochs.observe(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0 and header.base_sequence >= 0:
            self._producers.record(header, header.base_offset, header.max_timestamp, self._now_ms)
        self._report.replayed_batches += 1

    def _scan_tail(self, segments: list[Segment], clean_point: int) -> list[Segment]:
        """Check the segments from the clean point on; cut at the first fault and give those that are left."""
        for number in range(max(clean_point, 0), len(segments)):
            segment = segments[number]
            next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
            if number > max(clean_point, 0) and segment.base_offset != segments[number - 1].next_offset:
                self._remove_from(segments, number, f"offset {segments[number - 1].next_offset} comes next")
                return segments[:number]
            clean = self._clean.get(segment.base_offset)
            if clean is not None and clean.valid_bytes > segment.size:
                if next_base is not None:
                    self._keep(segment, next_base)
                    continue
                self._scan_short(segment)
                return segments
            fault = self._scan(segment, clean, next_base)
            if fault is not None:
                self._remove_from(segments, number + 1, "the segment before it is cut")
                _cut(segment)
                return segments[: number + 1]
        return segments

    def _scan(self, segment: Segment, clean: CleanPoint | None, next_base: int | None) -> str | None:
        """Check a segment above its clean point; give the fault with which the log ends here, if any."""
        file_bytes = segment.size
        segment.size = 0
        if clean is not None:
            _trust(segment, clean)
            segment.size = clean.valid_bytes
        if segment.size == file_bytes:
            return None
        start = segment.size
        index = self._rows(segment)
        walk = BatchWalk(segment.file, start, file_bytes, segment.next_offset, check_crc=True)
        overlap = None
        for _, header in walk:
            if next_base is not None and header.next_offset > next_base:
                overlap = f"the next segment starts at offset {next_base}"
                break
            self._take(segment, index, header)
            self._replay(header)
        self._report.scanned.append(Finding(segment.log_path, start, segment.size - start, "above the clean point"))
        fault = overlap or walk.fault
        if fault is None:
            return None
        self._report.cut.append(Finding(segment.log_path, segment.size, file_bytes - segment.size, fault))
        if segment.next_offset == next_base:
            _cut(segment)
            return None
        return fault

    def _rows(self, segment: Segment) -> Index:
        """Have the rows below the segment's size in memory, to be extended."""
        if segment.index is None:
            segment.index = decode_rows(self._store.read_file(segment.index_path), segment.index_path)
        if segment.index is None:
            segment.index = rebuild_rows(segment, self._config.index_interval_bytes)
        return segment.index

    def _scan_short(self, segment: Segment) -> None:
        """Take over a last segment that is shorter than its clean point: its whole batches, checked when read."""
        file_bytes = segment.size
        self._store.remove(segment.index_path)
        self._store.sync_directory(self._directory)
        walk = self._extend(segment, file_bytes, _NO_LIMIT)
        segment.verified_from = segment.size
        self._replay_segment(segment, segment.size, segment.base_offset)
        reason = f"shorter than its clean point: {walk.fault or 'whole batches are missing'}"
        self._report.cut.append(Finding(segment.log_path, segment.size, file_bytes - segment.size, reason))
        _cut(segment)

    def _remove_from(self, segments: list[Segment], number: int, reason: str) -> None:
        for segment in reversed(segments[number:]):
            self._report.cut.append(Finding(segment.log_path, 0, segment.size, reason))
            self._remove(segment)
        if segments[number:]:
            self._store.sync_directory(self._directory)

    def _remove(self, segment: Segment) -> None:
        segment.file.close()
        self._store.remove(segment.index_path)
        self._store.remove(segment.log_path)
        self._removed = True

    def _start_at(self, segments: list[Segment], log_start: int) -> list[Segment]:
        """Make the first segment of an empty log, and of one that lost all that was above its start."""
        if segments and segments[-1].next_offset >= log_start:
            return segments
        if segments:
            self._remove_from(segments, 0, f"the log ends below its start at offset {log_start}")
            self._producers = Producers()
        path = segment_path(self._directory, log_start)
        return [Segment(path, log_start, self._store.create(path + LOG_SUFFIX))]

    def _remove_future_snapshots(self, snapshots: list[int], log_end: int) -> list[int]:
        for offset in snapshots:
            if offset > log_end:
                self._store.remove(f"{self._directory}/{snapshot_name(offset)}")
                self._removed = True
        return [offset for offset in snapshots if offset <= log_end]


def _split(segments: list[Segment], log_start: int) -> tuple[list[Segment], list[Segment]]:
    """Part what is wholly below log_start from the rest: damage there must not cost what is above."""
    first = 0
    while first + 1 < len(segments) and segments[first + 1].base_offset <= log_start:
        first += 1
    return segments[:first], segments[first:]


def _cut(segment: Segment) -> None:
    """Cut the file to what is good of it, durably."""
    segment.file.truncate(segment.size)
    segment.file.sync()
    segment.synced_bytes = segment.size
    segment.synced_offset = segment.next_offset


def _trust(segment: Segment, clean: CleanPoint) -> None:
    """Believe an index file: rows are read when they are needed, CRCs are checked when the bytes are."""
    segment.index = None
    segment.clean_bytes = segment.synced_bytes = segment.verified_from = clean.valid_bytes
    segment.next_offset = segment.synced_offset = clean.next_offset
    segment.max_timestamp = clean.max_timestamp


def _offsets(names: list[str], suffix: str) -> list[int]:
    """Give the offsets in the names of that kind."""
    stems = [name[: -len(suffix)] for name in names if name.endswith(suffix)]
    return [int(stem) for stem in stems if len(stem) == _NAME_DIGITS and stem.isascii() and stem.isdigit()]
