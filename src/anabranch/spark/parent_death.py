"""Die with the parent: ask the kernel to kill this process when the one that made it ends, however it ends.

Spark's daemon ends its workers when the JVM hangs up, but a daemon that is killed itself cannot; without this, workers
whose JVM and daemon were killed began hundreds of calls more. Linux only; elsewhere the lease alone protects.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> bool:
    """Ask for SIGKILL at the parent's death; answer whether that will happen."""
    if not sys.platform.startswith("linux") or not _is_forked_by_daemon():
        return False
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        return False
    if os.getppid() == 1:  # it died before we asked
        os._exit(1)
    return True


def _is_forked_by_daemon() -> bool:
    """Tell whether Spark's Python daemon is the parent.

    Without a daemon (`spark.python.use.daemon=false`) a thread of the JVM is, and the kernel means the thread: it ends
    long before the worker does.
    """
    return os.path.basename(sys.argv[0]) == "daemon.py"  # noqa: PTH119 - argv[0] need not be a path of this machine
