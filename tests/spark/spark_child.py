"""A run on Spark in a process of its own, with a session of its own: `spark_child.py LAUNCH.json [OPTIONS.json]`.

Its exit code is the run's. It asks the kernel to end it with its parent, so that a test that is killed leaves nothing.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from functools import partial
from pathlib import Path

from contract_pipelines import build, read_launch

from anabranch.testing.history import HistoryWriter

PR_SET_PDEATHSIG = 1


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    launch = read_launch(Path(sys.argv[1]))
    given = launch.options()
    given.pop("member", None)
    more = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")) if len(sys.argv) > 2 else {}
    return build(launch.shape).run(**{"recorder": partial(HistoryWriter, launch.history), **given, **more})


if __name__ == "__main__":
    sys.exit(main())
