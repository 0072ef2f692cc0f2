"""The disk as a port that can fail: what the log asks of files and folders.

Two implementations: `DiskStore` (this package) and `anabranch.testing.memory_store.MemoryStore`, which models what a
disk may do to unsynced writes. What both promise:

- Every failure of the medium is a `StorageFailed`. A write that failed may have left any part of its bytes.
- What was written is readable at once. It survives a power cut only after `sync` of the file and, for a new, renamed or
  removed name, `sync_directory` of its folder. `replace_file` does all of that itself and is atomic.
- `sync`, `sync_directory`, `replace_file` and `read_at` may be called from any thread; the rest from one at a time.
- After a failed `sync` the unsynced bytes may be lost although they can still be read, and a second `sync` may succeed
  without having saved them: what must last has to be written anew, into a new file.
"""

from typing import Protocol


class File(Protocol):
    """One open file. Implementations may close and reopen what is behind it."""

    def size(self) -> int:
        """Give the size in bytes."""
        ...

    def write_at(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data` at `position`, or raise StorageFailed."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only where the file ends."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def sync(self) -> None:
        """Return when all that was written before the call is durable (fdatasync)."""
        ...

    def close(self) -> None:
        """Release the file; it must not be used any more."""
        ...


class Store(Protocol):
    """Folders and files under one root. Paths are relative, parts separated by `/`."""

    def open(self, path: str) -> File:
        """Open an existing file for reading and writing."""
        ...

    def create(self, path: str) -> File:
        """Create a new, empty file, also in place of an existing one."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """List the names in a folder, unsorted; an absent folder is empty."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a folder and those above it; durable after `sync_directory` of the folders above. `""` is the root."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; removing what is not there is fine."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a folder with all that is in it; removing what is not there is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, atomically replacing what had it."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when all names made, changed and removed in this folder before the call are durable."""
        ...

    def read_file(self, path: str, size: int = -1) -> bytes | None:
        """Read a whole file, or its first `size` bytes; None when it does not exist."""
        ...

    def replace_file(self, path: str, data: bytes) -> None:
        """Store a small file durably and atomically: after a crash it is the old or the new one, whole."""
        ...
