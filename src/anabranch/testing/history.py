"""Histories on disk and in memory: written by each process of a run, read back as one.

A process appends to a file of its own, `<folder>/<member>-<pid>.history`; one `record` call is one write(2), so what
was recorded survives kill -9 (the kernel has it; only a power cut could take it). A file is the line
`anabranch-history 1`, then frames: length, its complement and a CRC-32 (little-endian u32 each), then msgpack. The
first frame names the process, each other one is a batch `[time_ns, kinds, [event, …]]`, a byte of `kinds` per event.

A killed process leaves a prefix of what it wrote. So a frame cut short at the end of a file is *torn*: tolerated and
counted. Anything else that does not fit is damage, and an error: with the complement a flipped length cannot pass for a
torn end.

Times are CLOCK_MONOTONIC: comparable between processes of one machine since its start, and only there.
"""

import heapq
import os
import re
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, Self

import msgspec

from anabranch.core.errors import UsageError
from anabranch.core.history import Begun, Committed, Ended, Event, Sent, Settled

MAGIC = b"anabranch-history "
VERSION = 1
EVENTS_PER_FRAME_MAX = 4096
FILES_PER_PROCESS_MAX = 1000

_FIRST_LINE = MAGIC + b"%d\n" % VERSION
_HEADER = struct.Struct("<III")
_KINDS: tuple[type[Event], ...] = (Sent, Begun, Ended, Settled, Committed)
_KIND_OF = {kind: number for number, kind in enumerate(_KINDS)}
_MASK = 0xFFFFFFFF
_CREATE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Process(NamedTuple):
    """Who wrote one file. Two runs of a process number differ in `number`."""

    member: str
    pid: int
    number: int = 1

    @property
    def name(self) -> str:
        """`member-pid`, as in the file's name."""
        return f"{self.member}-{self.pid}" + (f"-{self.number}" if self.number > 1 else "")


class Batch(NamedTuple):
    """Events that were recorded together, in their order, at one time."""

    time_ns: int
    process: Process
    events: Sequence[Event]


class Source(Protocol):
    """One process's part of a history, which can be read again and again."""

    process: Process
    torn: int

    def __iter__(self) -> Iterator[Batch]:
        """Give the batches in the order of their recording."""


class History:
    """All that the processes of a run recorded, merged by time. It is read from its sources at each iteration."""

    def __init__(self, sources: Iterable[Source]) -> None:
        """Join the parts; equal times are told in the order of the parts."""
        self._sources = tuple(sources)

    def __iter__(self) -> Iterator[Batch]:
        """Give the batches of all processes by time."""
        return heapq.merge(*self._sources, key=lambda batch: batch.time_ns)

    @property
    def processes(self) -> tuple[Process, ...]:
        """Who recorded."""
        return tuple(source.process for source in self._sources)

    @property
    def torn(self) -> int:
        """How many files end in the middle of a frame; known when they have been read once."""
        return sum(source.torn for source in self._sources)


class HistoryWriter:
    """A recorder that appends to this process's file. Threads may share it; a forked child opens its own."""

    enabled = True

    def __init__(self, folder: Path | str, member: str) -> None:
        """Create the folder where needed and a new file in it."""
        if not re.fullmatch(r"[\w.-]{1,150}", member, re.ASCII):
            raise UsageError(f"the member name {member!r} becomes a file name: use letters, digits, '.', '_' and '-'")
        self._lock = threading.Lock()
        self._encoder = msgspec.msgpack.Encoder()
        self._pid = os.getpid()
        self._file, self.path, self.process = _create(Path(folder), member, self._pid)
        names = self._encoder.encode(self.process)
        self._write(_FIRST_LINE + _HEADER.pack(*_frame_header(names)) + names)

    def record(self, events: Sequence[Event]) -> None:
        """Append the events as one frame with one write(2), stamped now."""
        if os.getpid() != self._pid:
            raise UsageError(f"{self.path.name} belongs to process {self._pid}: open a HistoryWriter in each process")
        with self._lock:
            for start in range(0, len(events), EVENTS_PER_FRAME_MAX):
                self._write(self._frame(events[start : start + EVENTS_PER_FRAME_MAX]))

    def close(self) -> None:
        """Take no more. Closing twice is harmless."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        """Give the writer itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()

    def _frame(self, events: Sequence[Event]) -> bytearray:
        frame = bytearray(_HEADER.size)
        kinds = bytes([_KIND_OF[type(event)] for event in events])
        self._encoder.encode_into((time.monotonic_ns(), kinds, events), frame, _HEADER.size)
        _HEADER.pack_into(frame, 0, *_frame_header(memoryview(frame)[_HEADER.size :]))
        return frame

    def _write(self, data: bytes | bytearray) -> None:
        if self._file < 0:
            raise UsageError(f"the history {self.path} is closed or could not be written: open a new HistoryWriter")
        try:
            written = os.write(self._file, data)
            while written < len(data):  # a full disk may take a part; the rest then raises
                written += os.write(self._file, data[written:])
        except OSError as error:
            os.close(self._file)
            self._file = -1  # what follows a torn frame could not be read
            raise UsageError(f"cannot write the history {self.path}: {error}; make room for it") from error


class MemoryHistory:
    """A recorder and a source in memory, for tests; the caller says what time it is."""

    enabled = True
    torn = 0

    def __init__(self, member: str, pid: int = 1, now_ns: int = 0) -> None:
        """Begin with nothing recorded."""
        self.process = Process(member, pid)
        self.now_ns = now_ns
        self._batches: list[Batch] = []

    def record(self, events: Sequence[Event]) -> None:
        """Keep the events, stamped `now_ns`."""
        self._batches.append(Batch(self.now_ns, self.process, tuple(events)))

    def __iter__(self) -> Iterator[Batch]:
        """Give what was recorded."""
        return iter(self._batches)


def read_history(folder: Path | str) -> History:
    """Read all `*.history` files of a folder as one history. Raises UsageError if there is none, or one is not ours."""
    paths = sorted(Path(folder).glob("*.history"))
    if not paths:
        raise UsageError(f"no *.history files in {folder}: give the folder that the run recorded to")
    return History(_FileSource(path) for path in paths)


class _FileSource:
    """One file, read from its beginning at each iteration."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = msgspec.msgpack.Decoder()
        self.torn = 0
        self.process = Process(path.stem, 0)
        with path.open("rb") as file:
            self._open(file)

    def __iter__(self) -> Iterator[Batch]:
        with self._path.open("rb") as file:
            if not self._open(file):
                return
            while (payload := self._next(file)) is not None:
                yield self._batch(payload, file)

    def _open(self, file: BinaryIO) -> bool:
        """Check magic and version, learn the process. False if the process was killed before it had said so."""
        line = file.readline(64)
        complete = line.endswith(b"\n")
        if not (line.startswith(MAGIC) if complete else _FIRST_LINE.startswith(line)):
            raise UsageError(f"{self._path} is not a history: take it out of the folder")
        if complete and line != _FIRST_LINE:
            version = line[len(MAGIC) :].strip().decode("ascii", "replace")
            raise UsageError(f"{self._path} has format version {version}, not {VERSION}: use the release that wrote it")
        self.torn = 0 if complete else 1
        payload = self._next(file) if complete else None
        if payload is None:
            return False
        try:
            self.process = msgspec.msgpack.decode(payload, type=Process)
        except msgspec.MsgspecError as error:
            raise self._damaged(file, str(error)) from error
        return True

    def _next(self, file: BinaryIO) -> bytes | None:
        """Give the next frame's payload; None at the end, clean or torn."""
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            self.torn = 1 if header else 0
            return None
        length, complement, checksum = _HEADER.unpack(header)
        if length ^ complement != _MASK:
            raise self._damaged(file, "its length does not fit its complement")
        payload = file.read(length)
        if len(payload) < length:
            self.torn = 1
            return None
        if zlib.crc32(payload) != checksum:
            raise self._damaged(file, "its CRC does not fit")
        return payload

    def _batch(self, payload: bytes, file: BinaryIO) -> Batch:
        try:
            time_ns, kinds, rows = self._decoder.decode(payload)
            events = [_KINDS[kind]._make(row) for kind, row in zip(kinds, rows, strict=True)]
            return Batch(int(time_ns), self.process, events)
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError) as error:
            raise self._damaged(file, str(error)) from error

    def _damaged(self, file: BinaryIO, why: str) -> UsageError:
        return UsageError(f"{self._path} is damaged before byte {file.tell()}: {why}; record the run again")


def _frame_header(payload: bytes | memoryview) -> tuple[int, int, int]:
    return len(payload), len(payload) ^ _MASK, zlib.crc32(payload)


def _create(folder: Path, member: str, pid: int) -> tuple[int, Path, Process]:
    """Make a file that no one else has: a process that starts twice, or a process number used again, gets a number."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, FILES_PER_PROCESS_MAX + 1):
            process = Process(member, pid, number)
            path = folder / f"{process.name}.history"
            try:
                return os.open(path, _CREATE, 0o644), path, process
            except FileExistsError:
                continue
    except OSError as error:
        raise UsageError(f"cannot make a history in {folder}: {error}; choose another folder") from error
    raise UsageError(f"{folder} has {FILES_PER_PROCESS_MAX} histories of {member}-{pid}: record to a new folder")
