"""One Spark run at a time per state folder: a lock that dies with its process.

Two runs of one group from one folder would share the checkpoints of their queries, and their members would take each
other's places. The file stays behind, the lock does not: after a kill -9 the next run has it at once.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final, Self

from anabranch.core.errors import UsageError

LOCK_FILE: Final = "spark.lock"


class StateLock:
    """A state folder that is this run's until `release`."""

    def __init__(self, folder: Path) -> None:
        """Take it; raise UsageError if another run has it."""
        self.path = folder / LOCK_FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # closed on exec, so the JVM does not inherit it and outlive us with it
            self._descriptor: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                f"the state folder {folder} cannot be used: {error.strerror}; choose another with state_dir"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise UsageError(
                f"another Spark run (process {holder or 'unknown'}) uses the state folder {folder}: "
                "stop it, or give this one a folder of its own with state_dir"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next run have it; once is enough."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Self:
        """Hold it for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self.release()


def hold(folder: str | os.PathLike[str]) -> StateLock:
    """Take the state folder for this process, or raise UsageError that says who has it."""
    return StateLock(Path(folder))
