"""Half of 1,000 keys fail for ever: does memory stay flat, do the others go on, is the machine idle while all wait?

Run `python benchmarks/flat.py [--seconds 300]`; `make bench-engines` does it last. Attempts are unlimited and the
breaker is off, so the failing keys' records pile up to the bound of the gate; then their partitions pause and
`anabranch why` says so. Figures are read from the operating system: the resident memory of the run's process, and the
processor time that it used.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from anabranch import Breaker, Broker, Pipeline, Retry
from anabranch.runtime.status import ask

RECORDS = 400_000
KEYS = 1_000
PARTITIONS = 4
GROUP = "flat"
SAMPLE_S = 1.0
FLAT = 0.1
"""How far the memory may stray from its median."""
console = Console(width=140)


class Planned(Exception):
    """A failure that the work plans."""


async def fail_half(value: bytes) -> None:
    """Fail for ever for every second key."""
    if int(value[:5]) % 2:
        raise Planned(value[:14].decode())


def child(bootstrap: str, folder: str) -> int:
    """Run the pipeline until a signal comes."""
    pipeline = (
        Pipeline(GROUP)
        .read("flat", bytes)
        .process(fail_half, name="work", retry=Retry(attempts=None), breaker=Breaker(enabled=False))
    )
    return pipeline.run(engine="async", bootstrap=bootstrap, state_dir=folder, drain_s=0.0)


def preload(bootstrap: str) -> None:
    """Write more than the bound can hold."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("flat", PARTITIONS, 1)])["flat"].result()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        key = number % KEYS
        value = (b"%05d:%08d:" % (key, number // KEYS)).ljust(100, b"x")
        # Two neighbours share a partition: each partition has keys that fail and keys that do not.
        producer.produce("flat", value, b"key-%05d" % key, partition=key // 2 % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush(30)
    if producer.flush(60):
        raise SystemExit("the topic could not be filled")


def resident_mib(process: int) -> float:
    """Answer the resident memory of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def used_s(process: int) -> float:
    """Answer the processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def why(bootstrap: str, folder: str) -> str:
    """Ask as an operator would."""
    asked = [sys.executable, "-m", "anabranch", "why", GROUP, "--bootstrap", bootstrap, "--state-dir", folder]
    return subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout


def watch(process: int, folder: str, seconds: float) -> tuple[list[float], float, dict[str, Any]]:
    """Sample for so long from the moment on at which nothing more can settle.

    Answers the memory of that time, the load in it, and the last status.
    """
    memory: list[float] = []
    began = time.monotonic()
    settled_at, settled = began, -1
    quiet_since, quiet_used = began, 0.0
    status: dict[str, Any] = {}
    while time.monotonic() < settled_at + seconds:
        time.sleep(SAMPLE_S)
        try:
            status = ask(Path(folder) / f"{process}.sock")
        except OSError:
            continue
        if status["settled"] != settled:
            settled_at, settled = time.monotonic(), status["settled"]
            quiet_since, quiet_used = settled_at, used_s(process)
            memory.clear()
        memory.append(resident_mib(process))
        if console.is_terminal:
            console.print(
                f"  {time.monotonic() - began:4.0f} s: {settled:,} settled, {memory[-1]:.0f} MiB, "
                f"paused {_paused(status)} of {PARTITIONS}",
                end="\r",
            )
    load = (used_s(process) - quiet_used) / (time.monotonic() - quiet_since)
    return memory, load, status


def _paused(status: dict[str, Any]) -> int:
    return sum(1 for partition in status["partitions"].values() if partition["gate"] == "closed")


def measure(seconds: float) -> bool:
    """Run, print, and answer whether all is as it should be."""
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        preload(broker.bootstrap)
        run = subprocess.Popen([sys.executable, __file__, "--child", json.dumps([broker.bootstrap, folder])])
        try:
            memory, load, status = watch(run.pid, folder, seconds)
            sentences = why(broker.bootstrap, folder)
        finally:
            run.terminate()
            run.wait(30)
    middle = statistics.median(memory)
    stray = max(max(memory) - middle, middle - min(memory)) / middle
    paused = _paused(status)
    console.print(
        f"half of {KEYS:,} keys fail for ever: {status['settled']:,} records of the others settled, then {paused} of "
        f"{PARTITIONS} partitions paused; for {len(memory) * SAMPLE_S:.0f} s {middle:.0f} MiB ± {stray:.1%} "
        f"(aim ± {FLAT:.0%}); {load:.1%} of one core while all wait"
    )
    console.print("anabranch why says:\n  " + "\n  ".join(sentences.splitlines()[:8]), soft_wrap=True, highlight=False)
    return stray <= FLAT and paused == PARTITIONS


def main() -> int:
    """Measure, or be the measured process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long it is watched while all wait [300]")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child is not None:
        return child(*json.loads(asked.child))
    return 0 if measure(asked.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
