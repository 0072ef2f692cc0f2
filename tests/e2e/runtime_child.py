"""A run in a process of its own: `runtime_child.py BOOTSTRAP TOPIC GROUP KIND [DRAIN_S]`.

Records say what their call does; KIND is `thread` for a plain handler, `inline` for that engine.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from typing import Any

from anabranch import Pipeline
from anabranch.runtime.run import Run

STOP_HEARD = "stop heard"


def say(value: bytes) -> None:
    sys.stdout.write(value.decode() + "\n")
    sys.stdout.flush()


async def handle(value: bytes) -> None:
    """Return, or hang in the way that the record asks for."""
    say(value)
    if value == b"block":
        time.sleep(60)
    swallowed = {b"swallow": asyncio.CancelledError, b"swallow-all": BaseException}.get(value)
    while swallowed is not None:
        try:
            await asyncio.sleep(60)
        except swallowed:
            continue


def handle_in_thread(value: bytes) -> None:
    """Hang in a thread."""
    say(value)
    time.sleep(60)


def tell_of_stops() -> None:
    """Say when a signal was heard: the test must not send the second one before."""
    stop = Run.stop

    def told(run: Run, drain_s: float | None = None) -> None:
        os.write(1, f"{STOP_HEARD}\n".encode())  # safe in a signal handler
        stop(run, drain_s)

    Run.stop = told  # type: ignore[method-assign]  # only looked at


def main() -> int:
    tell_of_stops()
    bootstrap, topic, group, kind = sys.argv[1:5]
    drain_s = float(sys.argv[5]) if len(sys.argv) > 5 else 30.0
    engine = "inline" if kind == "inline" else "async"
    handler: Any = handle_in_thread if kind == "thread" else handle
    pipeline = Pipeline(group).read(topic, bytes).process(handler)
    with tempfile.TemporaryDirectory() as state_dir:
        return pipeline.run(engine, bootstrap=bootstrap, state_dir=state_dir, session_timeout_s=2, drain_s=drain_s)


if __name__ == "__main__":
    sys.exit(main())
