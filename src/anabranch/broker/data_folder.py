"""One broker per data folder: a lock that dies with its process, and how many files may be open."""

import fcntl
import os
import resource
from pathlib import Path
from typing import Final

from anabranch.core.errors import UsageError

LOCK: Final = "@lock"
_SPARE_DESCRIPTORS: Final = 64
"""For the interpreter, libraries, the listener, directories being synced."""


class DataFolder:
    """A data folder that is ours until `release`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(
                f"the data folder {self.path} cannot be used: {error.strerror}; choose another with --data-dir"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            found = f"the data folder {self.path} is in use by another broker (process {holder or 'unknown'})"
            raise UsageError(f"{found}: stop it, or choose another folder with --data-dir") from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others have it."""
        os.close(self._descriptor)


def open_files_max(wanted: int, connections_max: int) -> tuple[int, int]:
    """Share the descriptors that the system grants: answer how many log files and how many connections may be open.

    The soft limit is raised to the hard one first. Files get a quarter, or what was wanted; the rest is for clients.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (soft, resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    granted = soft if soft != resource.RLIM_INFINITY else 1_048_576
    files = wanted or min(4096, max(16, granted // 4))
    connections = max(1, min(connections_max, granted - files - _SPARE_DESCRIPTORS))
    return files, connections
