"""The works of the Spark benchmark: the pipeline, what its members note, and how the notes are judged.

A member keeps its notes in memory, three appends a call, and writes them to a file of its own when its lifespan ends:
when the clock has stopped. All clocks are the machine's monotonic one, so the notes of several processes are of
one time; order is judged over all of them.

Run as a script it is one member of `engine="async"` in a process of its own: each line of standard input is a JSON
order (a run to start, `stop`, `join`, or nothing), answered with its settled records and its partitions.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
import uuid
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from works import RETRY_S, Planned, Work

from anabranch import Breaker, Pipeline, Retry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

FAILURES = 2
"""Of each record that is planned to fail."""
NAMED_BYTES = 14
"""Key and sequence, at the beginning of a value; then the intended send time in nanoseconds, if there is one."""
RATE = Work("rate", 100_000, 2_000, 0.020, 1_000, fail_percent=1.0)
QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}
OPTIONS: dict[str, Any] = {"drain_s": 10.0}


def latency_work(rate: int, seconds: float) -> Work:
    """Answer the work of a load of so many records a second."""
    return Work(f"{rate:,}/s", int(rate * seconds), 2_000, 0.005, 1_000)


def fails(work: Work, key: int, sequence: int) -> bool:
    """Answer whether a record is planned to fail, as in `works`."""
    return crc32(b"%d:%d" % (key, sequence)) % 10_000 < work.fail_percent * 100


def failing(work: Work) -> dict[bytes, int]:
    """Answer which records fail, by the beginning of their values, and how often."""
    records = ((number % work.keys, number // work.keys) for number in range(work.records))
    return {b"%05d:%08d" % record: FAILURES for record in records if work.fail_percent and fails(work, *record)}


def build(work: Work, group: str, topic: str, folder: Path) -> Pipeline[Any]:
    """Make the pipeline of a work, whose members write their notes to a folder."""
    values: list[bytes] = []
    begun: list[float] = []
    ended: list[float] = []
    failed: list[int] = []
    left = failing(work)
    clock, sleep, sleep_s = time.perf_counter, asyncio.sleep, work.sleep_s

    async def handle(value: bytes) -> None:
        start = clock()
        await sleep(sleep_s)
        ended.append(clock())
        begun.append(start)
        values.append(value)
        if left.get(value[:NAMED_BYTES]):
            left[value[:NAMED_BYTES]] -= 1
            failed.append(len(values) - 1)
            raise Planned(value[:NAMED_BYTES])

    @asynccontextmanager
    async def noted() -> AsyncIterator[None]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield
        now = resource.getrusage(resource.RUSAGE_SELF)
        notes = {
            "values": [value.rstrip(b"x").decode() for value in values],
            "begun": begun,
            "ended": ended,
            "failed": failed,
            "cpu_s": now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime,
            "rss_mib": _rss_mib_max(),
        }
        Path(folder, f"{uuid.uuid4().hex}.json").write_text(json.dumps(notes), encoding="ascii")

    retry = Retry(attempts=None, initial_s=RETRY_S, max_s=RETRY_S, factor=1.0, jitter=0.0)
    return (
        Pipeline(group)
        .read(topic, bytes, start="earliest")
        .process(handle, name="work", concurrency=work.concurrency, retry=retry, breaker=Breaker(enabled=False))
        .lifespan(noted)
    )


def _rss_mib_max() -> float:
    """Answer the most memory that this process has had; `getrusage` counts what its parent had when it was started."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@dataclass(frozen=True)
class Call:
    """One call of the handler."""

    key: int
    sequence: int
    sent_at: float
    """When the record was meant to be sent; 0 if nobody said so."""
    begun: float
    ended: float
    failed: bool


@dataclass(frozen=True)
class Seen:
    """What one run showed."""

    calls: list[Call]
    cpu_s: float
    rss_mib: float


@dataclass(frozen=True)
class Figures:
    """What is kept of a run."""

    rate: float
    """Records a second, from the first call's begin to the last completion."""
    cpu_us: float
    """Processor time of the members for each call."""
    rss_mib: float
    latency_ms: dict[str, float]
    """From the intended send time to the end of the call; empty if nobody said when that was."""


def figures_of(seen: Seen) -> Figures:
    """Sum a run up."""
    done = [call for call in seen.calls if not call.failed]
    wall_s = max(call.ended for call in done) - min(call.begun for call in seen.calls)
    latencies = sorted((call.ended - call.sent_at) * 1e3 for call in done if call.sent_at)
    return Figures(
        len(done) / wall_s,
        seen.cpu_s / len(seen.calls) * 1e6,
        seen.rss_mib,
        {name: latencies[int(part * (len(latencies) - 1))] for name, part in QUANTILES.items() if latencies},
    )


def read_notes(folder: Path) -> Seen:
    """Read what all members of a run have noted."""
    calls: list[Call] = []
    cpu_s = rss_mib = 0.0
    for path in sorted(folder.glob("*.json")):
        notes = json.loads(path.read_bytes())
        failed = set(notes["failed"])
        for index, (value, begun, ended) in enumerate(
            zip(notes["values"], notes["begun"], notes["ended"], strict=True)
        ):
            key, sequence, sent_ns = value.split(":")
            calls.append(Call(int(key), int(sequence), int(sent_ns or 0) / 1e9, begun, ended, index in failed))
        cpu_s += notes["cpu_s"]
        rss_mib = max(rss_mib, notes["rss_mib"])
    return Seen(calls, cpu_s, rss_mib)


@dataclass
class Judgement:
    """Of one run."""

    done: int = 0
    repeats: int = 0
    disorder: int = 0
    overlaps: int = 0

    def __str__(self) -> str:
        return f"{self.done} done, {self.repeats} repeated, {self.disorder} out of order, {self.overlaps} overlapping"


def judge(calls: Iterable[Call]) -> Judgement:
    """Judge order and completeness per key, whichever process made the call."""
    by_key: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        by_key[call.key].append(call)
    found = Judgement()
    for chain in by_key.values():
        expected, free_at = 0, 0.0
        for call in sorted(chain, key=lambda each: each.begun):
            found.overlaps += call.begun < free_at
            free_at = max(free_at, call.ended)
            found.disorder += call.sequence > expected
            if not call.failed:
                found.repeats += call.sequence < expected
                found.done += call.sequence == expected
                expected += call.sequence == expected
    return found


def ideal_s(work: Work, members: int) -> float:
    """Answer how long the best schedule takes if every call takes what it should: key chains, concurrency, failures."""
    failures: dict[int, int] = defaultdict(int)
    for name, times in failing(work).items():
        failures[int(name[:5])] += times
    chain_s = work.records / work.keys * work.sleep_s + max(failures.values(), default=0) * (work.sleep_s + RETRY_S)
    busy_s = (work.records + sum(failures.values())) * work.sleep_s
    return max(chain_s, busy_s / (work.concurrency * members))


def main() -> None:
    """Be one member of `engine="async"`, in one run after the other, as a Python worker of Spark's is."""
    run: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "work" in asked:
            pipeline = build(Work(**asked["work"]), asked["group"], asked["topic"], Path(asked["folder"]))
            run = pipeline.start(engine="async", **asked["options"], **OPTIONS)
        elif asked.get("stop"):
            run.stop()
        elif asked.get("join"):
            run.join()
        statistics = run.statistics()
        told = {"settled": statistics["settled"], "partitions": len(statistics["partitions"])}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
