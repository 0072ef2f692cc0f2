"""One member in a process of its own: `python contract_child.py LAUNCH.json`. Its exit code is the run's.

It asks the kernel to end it with its parent, so that a test that is killed leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from pathlib import Path

from contract_pipelines import read_launch, recorder_of, run

PR_SET_PDEATHSIG = 1


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    launch = read_launch(Path(sys.argv[1]))
    return run(launch, recorder_of(launch))


if __name__ == "__main__":
    sys.exit(main())
