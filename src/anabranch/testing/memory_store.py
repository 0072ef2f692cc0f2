"""A store in memory that behaves like a disk on its worst day: `anabranch.broker.log.store.Store`, for tests.

What is written can be read at once and is durable only after a sync. Faults are asked for:

- `crash(rng)`: the power goes. Each unsynced write survives, is lost, is torn at any byte, or only its size survives;
  each unsynced change of a name (create, rename, remove) survives or not, all independently of one another. `kill()`:
  only the process goes and nothing is lost. After both, old handles raise `Crashed`.
- `crash_after(n)`: the n-th operation from now on that changes something raises `Crashed` instead, and so does all that
  follows, until `crash` or `kill`.
- `fail_next_sync()`: the sync fails and, as on Linux, the unsynced writes are dropped while they can still be read; the
  next sync succeeds and saves nothing of them.
- `fail_next_write(bytes_kept)`, `capacity`: a write fails after some of its bytes. `fail_next_create()`: the name is
  made and the call fails.
- `flip` and `shorten` damage what is stored.
"""

import random
import threading
from collections.abc import Callable

from anabranch.broker.log.errors import StorageFailed


class Crashed(BaseException):  # not an Exception: the process is gone, and nothing may catch it
    """The machine or the process of this store has stopped here."""


class _Gone:
    """The mark of a removed name."""


_GONE = _Gone()


class _Inode:
    """A file's bytes: as they can be read, as they are on the medium, and the steps between the two."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        """(position, bytes) of a write, (size, None) of a truncation."""

    def write(self, data: bytes, position: int) -> None:
        _put(self.data, data, position)
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        _resize(self.data, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        for position, data in self.pending:
            if data is None:
                _resize(self.durable, position)
            else:
                _put(self.durable, data, position)
        self.pending.clear()

    def fail_next_create(self) -> None:
        """Let the next create fail after the file is there."""
        self._failing_create = True

    def crash(self, rng: random.Random) -> None:
        for position, data in self.pending:
            fate = rng.choice(("kept", "lost", "torn", "sized"))
            if data is None:
                if fate != "lost":
                    _resize(self.durable, position)
            elif fate == "kept":
                _put(self.durable, data, position)
            elif fate == "torn":
                start, end = sorted((rng.choice((0, rng.randint(0, len(data)))), rng.randint(0, len(data))))
                _put(self.durable, data[start:end], position + start)
            elif fate == "sized":
                _put(self.durable, b"", position + len(data))
        self.pending.clear()
        self.data = bytearray(self.durable)


class MemoryStore:
    """See the module's text. `capacity` is the size of the disk in bytes, None for unbounded."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.operations = 0
        """How many operations have changed something so far."""
        self._generation = 0
        self._crash_at: int | None = None
        self._failing_syncs = 0
        self._failing_write: int | None = None
        self._failing_create = False
        self._lock = threading.RLock()
        self._names: dict[str, _Inode | None] = {"": None}
        self._durable_names: dict[str, _Inode | None] = {"": None}
        self._pending_names: list[dict[str, _Inode | _Gone | None]] = []

    def crash_after(self, operations: int | None) -> None:
        """Let the n-th changing operation from now on (0: the next one) raise Crashed; None takes it back."""
        self._crash_at = None if operations is None else self.operations + operations

    def fail_next_sync(self, count: int = 1) -> None:
        """Let the next syncs of files fail."""
        self._failing_syncs = count

    def fail_next_write(self, bytes_kept: int | None = 0) -> None:
        """Let the next write fail after this many bytes; None takes it back."""
        self._failing_write = bytes_kept

    def fail_next_create(self) -> None:
        """Let the next create fail after the file is there."""
        self._failing_create = True

    def crash(self, rng: random.Random) -> None:
        """Cut the power and start again: what is left is durable now."""
        with self._lock:
            for change in self._pending_names:
                if rng.random() < 0.5:
                    _apply(self._durable_names, change)
            for inode in _inodes(self._names | self._durable_names):
                inode.crash(rng)
            for path in sorted(self._durable_names):
                if path and _parent(path) not in self._durable_names:
                    del self._durable_names[path]
            self._pending_names.clear()
            self._names = dict(self._durable_names)
            self.kill()

    def kill(self) -> None:
        """Kill the process and start it again: nothing is lost, nothing is more durable than before."""
        self._generation += 1
        self._crash_at = None
        self._failing_syncs = 0
        self._failing_write = None
        self._failing_create = False

    def flip(self, path: str, position: int, bits: int = 0xFF) -> None:
        """Damage one byte of what is stored."""
        inode = self.inode(path)
        inode.data[position] ^= bits
        if position < len(inode.durable):
            inode.durable[position] ^= bits

    def shorten(self, path: str, size: int) -> None:
        """Cut what is stored, as a repair of the file system may do."""
        inode = self.inode(path)
        inode.sync()
        del inode.data[size:], inode.durable[size:]

    def open(self, path: str) -> "MemoryFile":
        """Open an existing file."""
        with self._lock:
            self.inode(path)
            return MemoryFile(self, path)

    def create(self, path: str) -> "MemoryFile":
        """Create a new, empty file; in place of an existing one it is another inode with the same name."""
        with self._lock:
            self._operate()
            if _parent(path) not in self._names:
                raise StorageFailed(f"cannot create {path}: its folder does not exist")
            self._change({path: _Inode()})
            if self._failing_create:
                self._failing_create = False
                raise StorageFailed(f"cannot create {path}: the disk failed as it was told to")
            return MemoryFile(self, path)

    def list_directory(self, path: str) -> list[str]:
        """List the names in a folder."""
        with self._lock:
            self._check_running()
            return [name.rpartition("/")[2] for name in self._names if name and _parent(name) == path]

    def make_directory(self, path: str) -> None:
        """Make a folder and those above it."""
        with self._lock:
            parts = path.split("/")
            for depth in range(1, len(parts) + 1):
                folder = "/".join(parts[:depth])
                if folder not in self._names:
                    self._operate()
                    self._change({folder: None})

    def remove(self, path: str) -> None:
        """Remove a file."""
        with self._lock:
            self._operate()
            if path in self._names:
                self._change({path: _GONE})

    def remove_directory(self, path: str) -> None:
        """Remove a folder with all that is in it."""
        with self._lock:
            for name in [name for name in self._names if name == path or name.startswith(path + "/")]:
                self._operate()
                self._change({name: _GONE})

    def rename(self, source: str, target: str) -> None:
        """Rename, atomically, also over a crash."""
        with self._lock:
            self._operate()
            self._change({source: _GONE, target: self.inode(source)})

    def sync_directory(self, path: str) -> None:
        """Make the names in a folder durable."""
        with self._lock:
            self._operate()
            for change in [change for change in self._pending_names if _parent(next(iter(change))) == path]:
                _apply(self._durable_names, change)
                self._pending_names.remove(change)

    def read_file(self, path: str, size: int = -1) -> bytes | None:
        """Read a file or its beginning."""
        with self._lock:
            self._check_running()
            inode = self._names.get(path)
            if inode is None:
                return None
            return bytes(inode.data if size < 0 else inode.data[:size])

    def replace_file(self, path: str, data: bytes) -> None:
        """Write beside it, sync, rename, sync the folder: each of these may crash or fail."""
        with self._lock:
            file = self.create(path + ".tmp")
            file.write_at(data, 0)
            file.sync()
            self.rename(path + ".tmp", path)
            self.sync_directory(_parent(path))

    def used(self) -> int:
        """Give how many bytes all files have."""
        return sum(len(inode.data) for inode in _inodes(self._names))

    def inode(self, path: str) -> _Inode:
        """Give what a name stands for now; for MemoryFile."""
        inode = self._names.get(path)
        if inode is None:
            raise StorageFailed(f"cannot open {path}: no such file")
        return inode

    def check(self, path: str, generation: int, *, changes: bool) -> None:
        """Refuse a handle of an earlier life, and count; for MemoryFile."""
        if generation != self._generation:
            raise Crashed(f"{path} was opened before the crash")
        if changes:
            self._operate()
        else:
            self._check_running()

    def write(self, inode: _Inode, data: bytes, position: int) -> None:
        """Write, unless it has to fail; for MemoryFile."""
        kept, self._failing_write = self._failing_write, None
        if kept is not None:
            inode.write(data[:kept], position)
            raise StorageFailed("cannot write: the disk failed as it was told to")
        if self.capacity is not None:
            room = self.capacity - self.used() + max(0, len(inode.data) - position)
            if len(data) > room:
                inode.write(data[: max(room, 0)], position)
                raise StorageFailed("cannot write: the disk is full; remove something")
        inode.write(data, position)

    def sync(self, inode: _Inode) -> None:
        """Sync, unless it has to fail; for MemoryFile."""
        if self._failing_syncs:
            self._failing_syncs -= 1
            inode.pending.clear()
            raise StorageFailed("cannot sync: the disk failed as it was told to")
        inode.sync()

    @property
    def lock(self) -> threading.RLock:
        """The lock of all operations; for MemoryFile."""
        return self._lock

    @property
    def generation(self) -> int:
        """Which life of the machine this is."""
        return self._generation

    def _change(self, change: dict[str, _Inode | _Gone | None]) -> None:
        _apply(self._names, change)
        self._pending_names.append(change)

    def _operate(self) -> None:
        self._check_running()
        self.operations += 1

    def _check_running(self) -> None:
        if self._crash_at is not None and self.operations >= self._crash_at:
            raise Crashed(f"stopped before operation {self._crash_at}")


class MemoryFile:
    """A handle on a file of a MemoryStore; bound to the file that had the name when it was opened."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store = store
        self._path = path
        self._generation = store.generation
        self._inode = store.inode(path)

    def size(self) -> int:
        """Give the size."""
        return len(self._use(changes=False).data)

    def write_at(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write, all or in part with an error."""
        self._run(lambda inode: self._store.write(inode, bytes(data), position))

    def read_at(self, position: int, size: int) -> bytes:
        """Read."""
        return bytes(self._use(changes=False).data[position : position + size])

    def truncate(self, size: int) -> None:
        """Cut."""
        self._run(lambda inode: inode.truncate(size))

    def sync(self) -> None:
        """Make durable."""
        self._run(self._store.sync)

    def close(self) -> None:
        """Do nothing: handles cost nothing here."""

    def _run(self, operation: Callable[[_Inode], None]) -> None:
        with self._store.lock:
            operation(self._use(changes=True))

    def _use(self, *, changes: bool) -> _Inode:
        self._store.check(self._path, self._generation, changes=changes)
        return self._inode


def _apply(names: dict[str, _Inode | None], change: dict[str, _Inode | _Gone | None]) -> None:
    for path, inode in change.items():
        if isinstance(inode, _Gone):
            names.pop(path, None)
        else:
            names[path] = inode


def _inodes(names: dict[str, _Inode | None]) -> list[_Inode]:
    """Give each file once, in an order that is the same in every run."""
    return list(dict.fromkeys(inode for inode in names.values() if inode is not None))


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _put(target: bytearray, data: bytes, position: int) -> None:
    if position > len(target):
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


def _resize(target: bytearray, size: int) -> None:
    del target[size:]
    target.extend(bytes(size - len(target)))
