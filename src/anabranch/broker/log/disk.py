"""The store over the operating system's files, with a bound on how many are open at once.

Handles (`DiskFile`) are cheap and as many as there are segments; descriptors are few. A handle opens its descriptor
when it needs it; when `open_files_max` are open, the least recently used one is closed first. A handle that is in use
(a sync under way in another thread, for one) is pinned and never closed under its user; if all are pinned, one more is
opened rather than failing.

Linux reports a failed write-back to descriptors that were open, and to one opened later only while the file stays in
memory. So handles without unsynced writes are closed in preference; this is best effort, as it is in the kernel.
"""

import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anabranch.broker.log.errors import StorageFailed

_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has none

_LOOK_AHEAD = 16
"""How many of the least recently used handles are looked at for one without unsynced writes."""


class DiskStore:
    """Files under `root`. Thread-safe as `Store` says."""

    def __init__(self, root: str | Path, *, open_files_max: int = 256) -> None:
        self.root = Path(root)
        self.open_files_max = max(1, open_files_max)
        self._prefix = str(self.root) + "/"
        self._lock = threading.Lock()
        self._opened: OrderedDict[DiskFile, None] = OrderedDict()

    @property
    def open_files(self) -> int:
        """How many descriptors are open now."""
        return len(self._opened)

    def open(self, path: str) -> "DiskFile":
        """Open an existing file; its descriptor is opened when it is first needed."""
        return DiskFile(self, self._prefix + path)

    def create(self, path: str) -> "DiskFile":
        """Create a new, empty file, also in place of an existing one."""
        file = DiskFile(self, self._prefix + path)
        with _failures("create", file.path):
            file.create()
        return file

    def list_directory(self, path: str) -> list[str]:
        """List the names in a folder."""
        with _failures("list", path):
            try:
                return os.listdir(self._prefix + path)  # noqa: PTH208 - names, not Path objects: 1,000 partitions at start
            except FileNotFoundError:
                return []

    def make_directory(self, path: str) -> None:
        """Make a folder and those above it, also the root."""
        with _failures("make", path):
            Path(self._prefix + path).mkdir(parents=True, exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file."""
        with _failures("remove", path):
            Path(self._prefix + path).unlink(missing_ok=True)

    def remove_directory(self, path: str) -> None:
        """Remove a folder with all that is in it."""
        with _failures("remove", path), suppress(FileNotFoundError):
            shutil.rmtree(self._prefix + path)

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing what is there."""
        with _failures("rename", source):
            Path(self._prefix + source).replace(self._prefix + target)

    def sync_directory(self, path: str) -> None:
        """Sync the names in a folder."""
        with _failures("sync", path):
            descriptor = os.open(self._prefix + path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read_file(self, path: str, size: int = -1) -> bytes | None:
        """Read a file or its beginning."""
        with _failures("read", path):
            try:
                with open(self._prefix + path, "rb", buffering=0) as file:  # noqa: PTH123 - Path.open costs twice as much
                    return file.read(size)
            except FileNotFoundError:
                return None

    def replace_file(self, path: str, data: bytes) -> None:
        """Write beside it, sync, rename, sync the folder."""
        with _failures("replace", path):
            temporary = Path(self._prefix + path + ".tmp")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                _write_all(descriptor, data, 0)
                _sync_data(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(self._prefix + path)
        self.sync_directory(path.rpartition("/")[0])

    def close(self) -> None:
        """Close every descriptor that is not in use."""
        with self._lock:
            for file in [file for file in self._opened if not file.pins]:
                self._close(file)

    def pin(self, file: "DiskFile", flags: int = 0) -> int:
        """Give the handle's descriptor, opened if need be, and keep it open until `unpin`."""
        with self._lock:
            if file.closed:
                # Reopening by path could find the file of another topic that has this name now.
                raise StorageFailed(f"{file.path} is closed")
            if file.descriptor < 0:
                if len(self._opened) >= self.open_files_max:
                    self._close_one()
                file.descriptor = os.open(file.path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
            else:
                del self._opened[file]
            self._opened[file] = None
            file.pins += 1
            return file.descriptor

    def unpin(self, file: "DiskFile") -> None:
        """Allow the handle's descriptor to be closed."""
        with self._lock:
            file.pins -= 1
            if file.closed and not file.pins:
                self._close(file)

    def release(self, file: "DiskFile") -> None:
        """Close the handle's descriptor for good, when its last user is done."""
        with self._lock:
            file.closed = True
            if not file.pins:
                self._close(file)

    def _close_one(self) -> None:
        first = None
        for looked, file in enumerate(self._opened):
            if file.pins:
                continue
            if not file.unsynced:
                first = file
                break
            first = first or file
            if looked >= _LOOK_AHEAD:
                break
        if first is not None:
            self._close(first)

    def _close(self, file: "DiskFile") -> None:
        if self._opened.pop(file, file) is None and file.descriptor >= 0:
            os.close(file.descriptor)
            file.descriptor = -1


class DiskFile:
    """A handle; see the module's text for when it has a descriptor."""

    __slots__ = ("_store", "closed", "descriptor", "path", "pins", "unsynced")

    def __init__(self, store: DiskStore, path: str) -> None:
        self._store = store
        self.path = path
        self.descriptor = -1
        self.pins = 0
        self.unsynced = False
        self.closed = False

    def create(self) -> None:
        """Make the file new and empty."""
        self._store.pin(self, os.O_CREAT | os.O_TRUNC)
        self._store.unpin(self)

    def size(self) -> int:
        """Ask the file system."""
        with _failures("look at", self.path):
            return os.stat(self.path).st_size  # noqa: PTH116 - no Path object per segment at start

    def write_at(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of it, in several goes if the system takes less at once."""
        self.unsynced = True
        try:
            descriptor = self._store.pin(self)
            try:
                written = os.pwrite(descriptor, data, position)
                if written != len(data):
                    _write_all(descriptor, memoryview(data)[written:], position + written)
            finally:
                self._store.unpin(self)
        except OSError as error:
            raise StorageFailed(f"cannot write {self.path}: {error.strerror}; free or repair the disk") from error

    def read_at(self, position: int, size: int) -> bytes:
        """Read in one go: regular files give less only at their end."""
        try:
            descriptor = self._store.pin(self)
            try:
                return os.pread(descriptor, size, position)
            finally:
                self._store.unpin(self)
        except OSError as error:
            raise StorageFailed(f"cannot read {self.path}: {error.strerror}; check the disk") from error

    def truncate(self, size: int) -> None:
        """Cut it."""
        self.unsynced = True
        with _failures("truncate", self.path), _pinned(self._store, self) as descriptor:
            os.ftruncate(descriptor, size)

    def sync(self) -> None:
        """Call fdatasync. Cleared before, so that a write during the call leaves the mark set."""
        with _failures("sync", self.path), _pinned(self._store, self) as descriptor:
            self.unsynced = False
            _sync_data(descriptor)

    def close(self) -> None:
        """Give the descriptor back."""
        self._store.release(self)


@contextmanager
def _pinned(store: DiskStore, file: DiskFile) -> Iterator[int]:
    descriptor = store.pin(file)
    try:
        yield descriptor
    finally:
        store.unpin(file)


@contextmanager
def _failures(verb: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed(f"cannot {verb} {path}: {error.strerror}; free or repair the disk") from error


def _write_all(descriptor: int, data: bytes | memoryview, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        if written == 0:
            raise OSError(5, "the system took no bytes")
        view = view[written:]
        position += written
