"""What a record costs, by part of the code: the processor time of a run, shared out by a sampling profiler.

Part of `make bench-engines`. W4 (200,000 records, no work) runs once under py-spy, which looks 500 times a second at
what the thread does that holds the interpreter; a sample counts for the innermost frame that is ours. The shares are
applied to what a record cost in the runs without the profiler. The client library's own threads are told apart by the
operating system.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

PARTS = {
    "kafka": "kafka: poll, records out of messages, hold-back",
    "control": "control: lanes, schedule, tracker, commits",
    "engine": "engine: workers, calls, outbox",
    "pipeline": "pipeline: decode, finish",
    "runtime": "runtime: threads' crossing, effects",
    "works.py": "the handler itself and its notes",
    "outside": "event loop, interpreter",
}
_FRAME = re.compile(r"\((?:.*/)?(?:anabranch/(?P<part>\w+)/[\w/]+\.py|(?P<file>works\.py)):\d+\)$")
RATE = 500


def shares(stacks: str) -> Counter[str]:
    """Answer how many samples fell to each part, from py-spy's raw lines: frames, then a count."""
    found: Counter[str] = Counter()
    for line in stacks.splitlines():
        frames, _, count = line.rpartition(" ")
        if "importlib" not in frames:  # else: start-up
            found[_part(frames.split(";"))] += int(count)
    return found


def _part(frames: list[str]) -> str:
    for frame in reversed(frames):
        match = _FRAME.search(frame)
        if match is not None:
            return match["part"] or match["file"]
    return "outside"


def profile(asked: dict[str, str]) -> Counter[str]:
    """Run one work under the profiler; answer the samples by part."""
    with tempfile.TemporaryDirectory() as folder:
        stacks = Path(folder) / "stacks.txt"
        spy = [str(Path(sys.executable).parent / "py-spy"), "record", "--gil", "--nonblocking", "--full-filenames"]
        work = [sys.executable, str(Path(__file__).parent / "works.py")]
        child = subprocess.run(
            [*spy, "--format", "raw", "--rate", str(RATE), "--output", str(stacks), "--", *work],
            input=json.dumps(asked) + "\n",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if child.returncode:
            raise SystemExit(f"the profiled run failed: {child.stderr[-2000:]}")
        return shares(stacks.read_text())


def show(console: Console, found: Counter[str], python_us: float, library_us: float) -> None:
    """Print the table."""
    table = Table(title="W4: what a record costs, in microseconds of CPU")
    table.add_column("part")
    table.add_column("µs", justify="right")
    total = sum(found.values())
    for part, count in found.most_common():
        table.add_row(PARTS.get(part, part), f"{python_us * count / total:.2f}")
    table.add_row("the client library's own threads", f"{library_us:.2f}")
    table.add_row("all", f"{python_us + library_us:.2f}")
    console.print(table)
