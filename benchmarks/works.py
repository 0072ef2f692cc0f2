"""The works of the engine benchmark: what is read, what the handler does, and the best that any schedule could do.

Run as a script it is one measured run in a process of its own: it reads a JSON description on standard input and
prints a JSON result. The handler notes every call; from the notes come order, completeness and the ideal.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from zlib import crc32

from anabranch import Breaker, Pipeline, Retry

RETRY_S = 0.05
COUNTED_S = 0.2
"""How often the client tells what it has received."""


@dataclass(frozen=True)
class Work:
    """One row of the table."""

    name: str
    records: int
    keys: int
    sleep_s: float
    concurrency: int
    fail_percent: float = 0.0
    """Of the records, chosen by hash of key and sequence: they fail twice."""
    stuck_key: bool = False
    """Key 0 fails for ever."""
    write: bool = False


WORKS = {
    "W1": Work("W1", 20_000, 100, 0.005, 100),
    "W1o": Work("W1o", 20_000, 100, 0.005, 100, write=True),
    "W2": Work("W2", 20_000, 1_000, 0.005, 1_000),
    "W3": Work("W3", 20_000, 100, 0.005, 100, fail_percent=1.0),
    "W3s": Work("W3s", 20_000, 100, 0.005, 100, stuck_key=True),
    "W4": Work("W4", 200_000, 1_000, 0.0, 256),
}


def value_of(work: Work, number: int) -> tuple[bytes, bytes]:
    """Answer key and value of the n-th record: keys round-robin, sequence within the key, 100 bytes."""
    key, sequence = number % work.keys, number // work.keys
    return b"key-%05d" % key, (b"%05d:%08d:" % (key, sequence)).ljust(100, b"x")


class Planned(Exception):
    """A failure that the work plans."""


@dataclass
class Notes:
    """What the handler saw."""

    work: Work
    next_sequence: dict[int, int] = field(default_factory=dict)
    busy_s: dict[int, float] = field(default_factory=dict)
    """Per key: the time its calls took, and the retry delays between them."""
    failed: dict[tuple[int, int], int] = field(default_factory=dict)
    seen: list[bytes] = field(default_factory=list)
    """In a work without work: the values as they came, judged when the clock has stopped."""
    done: int = 0
    calls: int = 0
    disorder: int = 0
    repeats: int = 0
    first_at: float = 0.0
    last_at: float = 0.0

    def should_fail(self, key: int, sequence: int) -> bool:
        """Answer whether this call fails by plan."""
        if self.work.stuck_key and key == 0:
            return True
        if not self.work.fail_percent or crc32(b"%d:%d" % (key, sequence)) % 10_000 >= self.work.fail_percent * 100:
            return False
        before = self.failed.get((key, sequence), 0)
        self.failed[key, sequence] = before + 1
        return before < 2

    def judge_seen(self) -> None:
        """Judge what was only noted."""
        self.calls += len(self.seen)
        for value in self.seen:
            self.ended(int(value[:5]), int(value[6:14]))

    def ended(self, key: int, sequence: int) -> None:
        """Judge order and completeness."""
        expected = self.next_sequence.get(key, 0)
        if sequence == expected:
            self.next_sequence[key] = expected + 1
            self.done += 1
        elif sequence < expected:
            self.repeats += 1
        else:
            self.disorder += 1


def handler_of(notes: Notes):  # type: ignore[no-untyped-def]
    """Answer the handler of a work."""
    work, clock, sleep, sleep_s = notes.work, time.perf_counter, asyncio.sleep, notes.work.sleep_s

    async def wait(value: bytes) -> bytes | None:
        key, sequence = int(value[:5]), int(value[6:14])
        begun = clock()
        if not notes.calls:
            notes.first_at = begun
        notes.calls += 1
        await sleep(sleep_s)
        ended = clock()
        notes.busy_s[key] = notes.busy_s.get(key, 0.0) + ended - begun
        if notes.should_fail(key, sequence):
            notes.busy_s[key] += RETRY_S
            raise Planned(f"{key}:{sequence}")
        notes.last_at = ended
        notes.ended(key, sequence)
        return value if work.write else None

    seen, note = notes.seen, notes.seen.append

    async def nothing(value: bytes) -> None:
        note(value)
        if len(seen) == 1:
            notes.first_at = clock()
        elif len(seen) >= work.records:
            notes.last_at = clock()

    return wait if sleep_s else nothing


def measure(work: Work, bootstrap: str, topic: str, group: str) -> dict[str, object]:
    """Run the work once and answer what was seen."""
    notes = Notes(work)
    retry = Retry(attempts=None, initial_s=RETRY_S, max_s=RETRY_S, factor=1.0, jitter=0.0)
    pipeline = (
        Pipeline(group)
        .read(topic, bytes, start="earliest")
        .process(
            handler_of(notes), name="work", concurrency=work.concurrency, retry=retry, breaker=Breaker(enabled=False)
        )
    )
    if work.write:
        pipeline = pipeline.write(f"{topic}.out")
    wanted = work.records - (work.records // work.keys if work.stuck_key else 0)
    begun, cpu = time.perf_counter(), time.process_time()
    run = pipeline.start(engine="async", bootstrap=bootstrap, kafka={"statistics.interval.ms": int(COUNTED_S * 1000)})
    while notes.done + len(notes.seen) < wanted and not run.join(0.05):
        if time.perf_counter() - begun > 300:
            break
    cpu_s = time.process_time() - cpu
    library_cpu_s = _library_cpu_s()
    time.sleep(2 * COUNTED_S)  # until the client has counted what it received last
    statistics = run.statistics()
    run.stop(drain_s=0.0 if work.stuck_key else 10.0)
    run.join(30)
    notes.judge_seen()
    return {
        "work": asdict(work),
        "done": notes.done,
        "wanted": wanted,
        "calls": notes.calls,
        "disorder": notes.disorder,
        "repeats": notes.repeats,
        "wall_s": notes.last_at - notes.first_at,
        "chain_s": max((busy for key, busy in notes.busy_s.items() if not (work.stuck_key and key == 0)), default=0.0),
        "busy_s": sum(notes.busy_s.values()),
        "cpu_s": cpu_s,
        "library_cpu_s": library_cpu_s,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "statistics": statistics,
    }


def _library_cpu_s() -> float:
    """Answer the processor time of threads that are not Python's: those of the client library."""
    python = {thread.native_id for thread in threading.enumerate()}
    used = 0
    for folder in Path("/proc/self/task").iterdir():
        if int(folder.name) not in python:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    asked = json.loads(sys.stdin.readline())
    print(json.dumps(measure(WORKS[asked["work"]], asked["bootstrap"], asked["topic"], asked["group"]), default=str))
