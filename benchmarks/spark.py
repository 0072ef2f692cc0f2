"""Members on Spark beside as many processes of `engine="async"`, the ideal, and a naive query: `make bench-spark`.

One embedded broker and one Spark session serve all runs. First the rate: Spark and async alternate over the same
preloaded records, the clock goes from the first call to the last completion, and order and completeness are judged over
the notes of all members. Then latency, from the intended send time of an open-loop producer to the end of the call;
both members have their partitions before the load begins. Beside them a query with `foreachBatch` and the handler
inline, over a fraction of the records and of the load: it would take minutes for all of them. A run before the first of
a kind is not counted. The ideal is what the best schedule would take with calls that last what they should.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pyspark
import spark_naive
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from engines import PARTITIONS, preload
from rich.console import Console
from spark_members import END_S_MAX, MEMBERS, AsyncEngine, SparkEngine
from spark_table import LATENCY_AIMS_MS, add_latency, add_rate, new_table
from spark_works import RATE, figures_of, judge, latency_work, read_notes
from works import value_of

from anabranch import Broker
from anabranch.spark import register
from anabranch.spark.masters import local_master
from anabranch.spark.session import make_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from rich.table import Table
    from spark_members import Engine
    from spark_works import Figures, Seen
    from works import Work

LOADS = (1_000, 3_000)
WARM_S = 2.0
NAIVE_RECORDS = 2_000
NAIVE_LOAD, NAIVE_S = 200, 8.0
"""A load that it can bear: four Spark tasks and 5 ms allow 800/s."""
TOGETHER_S = 1.0
"""How long the first rebalance of a group waits for the others; Kafka's default is 3 s."""
console = Console(width=140)


class Bench:
    """The broker, the session and the folder of all runs."""

    def __init__(self, broker: Broker, spark: SparkSession, folder: Path) -> None:
        self._broker = broker
        self._spark = spark
        self._folder = folder
        self._options = {"bootstrap": broker.bootstrap}
        self._runs = 0

    def rates(self, engines: Sequence[Engine], pairs: int) -> list[list[Figures]]:
        """Measure the rate of each engine, taking turns, over the same records."""
        preload(self._broker, "rate", RATE)
        found: list[list[Figures]] = [[] for _ in engines]
        for number in range(pairs + 1):
            for engine, seen in zip(engines, found, strict=True):
                seen.append(self._rate(engine))
                _progress(f"rate {number}/{pairs} {engine.name}: {seen[-1].rate:,.0f}/s")
        return [seen[1:] for seen in found]

    def _rate(self, engine: Engine) -> Figures:
        folder = self._new_folder()
        engine.start(RATE, "rate", folder, {**self._options, "until": "end"}).join()
        return _judged(RATE, read_notes(folder))

    def latencies(self, engines: Sequence[Engine], rate: int, runs: int, seconds: float) -> list[list[Figures]]:
        """Measure the latency of each engine under a load, taking turns."""
        found: list[list[Figures]] = [[] for _ in engines]
        for number in range(1, runs + 1):
            for engine, seen in zip(engines, found, strict=True):
                seen.append(self.latency(engine, rate, seconds))
                told = ", ".join(f"{name} {ms:.1f} ms" for name, ms in seen[-1].latency_ms.items())
                _progress(f"{rate:,}/s {number}/{runs} {engine.name}: {told}")
        return found

    def latency(self, engine: Engine, rate: int, seconds: float) -> Figures:
        """Measure the latency of one engine under a load, once."""
        work = latency_work(rate, seconds)
        folder = self._new_folder()
        topic = self._new_topic(folder)
        members = engine.start(work, topic, folder, {**self._options})
        _wait("members share the partitions", lambda: members.partitions() == [PARTITIONS // MEMBERS] * MEMBERS)
        self._load(work, topic, rate)
        _wait("all records are settled", lambda: members.settled() >= work.records)
        members.stop()
        members.join()
        return _judged(work, read_notes(folder))

    def _load(self, work: Work, topic: str, rate: int) -> None:
        asked = {"work": asdict(work), "topic": topic, "rate": rate, "partitions": PARTITIONS, **self._options}
        child = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "spark_load.py")],
            input=json.dumps(asked) + "\n",
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        late_ms = json.loads(child.stdout)["late_s"] * 1e3
        if late_ms > LATENCY_AIMS_MS["p50"]:
            console.print(f"  the producer itself was up to {late_ms:.0f} ms late")

    def naive_rate(self) -> Figures:
        """Measure a query with the handler inline, over a fraction of the records."""
        work = replace(RATE, records=NAIVE_RECORDS)
        folder = self._new_folder()
        preload(self._broker, folder.name, work)
        query = spark_naive.start(self._spark, work, self._broker.bootstrap, folder.name, folder, to_end=True)
        query.awaitTermination(int(END_S_MAX))
        return _judged(work, read_notes(folder))

    def naive_latency(self) -> Figures:
        """Measure its latency under a load that it can bear, when it has handled a first batch."""
        work = latency_work(NAIVE_LOAD, NAIVE_S)
        folder = self._new_folder()
        topic = self._new_topic(folder)
        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        for partition in range(PARTITIONS):
            producer.produce(topic, value_of(work, partition)[1], partition=partition)
        producer.flush(10)
        query = spark_naive.start(self._spark, work, self._broker.bootstrap, topic, folder, to_end=False)
        _wait("the query has handled something", lambda: len(read_notes(folder).calls) >= PARTITIONS)
        self._load(work, topic, NAIVE_LOAD)
        _wait("all rows are handled", lambda: len(read_notes(folder).calls) >= PARTITIONS + work.records)
        query.stop()
        seen = read_notes(folder)
        return _judged(work, replace(seen, calls=[call for call in seen.calls if call.sent_at]))

    def _new_folder(self) -> Path:
        """Make the folder of a run; its name is that of the group too."""
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        folder.mkdir()
        return folder

    def _new_topic(self, folder: Path) -> str:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (folder.name, f"{folder.name}.out")])
        for each in made.values():
            each.result()
        return folder.name


def _judged(work: Work, seen: Seen) -> Figures:
    """Judge a run: a wrong result is no result."""
    found = judge(seen.calls)
    if found.done != work.records or found.disorder or found.overlaps:
        raise SystemExit(f"{work.name}: {found}, of {work.records}")
    if found.repeats:
        console.print(f"  {work.name}: {found}")
    return figures_of(seen)


def _wait(what: str, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + END_S_MAX
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"waited in vain until {what}")
        time.sleep(0.2)


def _progress(line: str) -> None:
    console.print(f"  {line:<100}", end="\r" if console.is_terminal else "\n")


def measure(bench: Bench, engines: Sequence[Engine], asked: argparse.Namespace) -> Table:
    """Measure what was asked for and answer the table."""
    table = new_table()
    if not asked.skip_rate:
        ours, theirs = bench.rates(engines, asked.pairs)
        add_rate(table, ours, theirs, bench.naive_rate())
    for engine in engines if asked.loads else ():
        bench.latency(engine, LOADS[0], WARM_S)
    for rate in asked.loads:
        ours, theirs = bench.latencies(engines, rate, asked.runs, asked.seconds)
        add_latency(table, rate, ours, theirs, bench.naive_latency() if rate == asked.loads[0] else None)
    return table


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skip-rate", action="store_true", help="measure latency only")
    parser.add_argument("--loads", type=int, nargs="*", default=LOADS, help="records a second, for latency [1000 3000]")
    parser.add_argument("--pairs", type=int, default=7, help="alternating runs of the rate [7]")
    parser.add_argument("--runs", type=int, default=3, help="alternating runs of the latency under each load [3]")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a load lasts [5]")
    asked = parser.parse_args()
    begun = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-bench-")))
        broker = stack.enter_context(Broker(rebalance_delay_s=TOGETHER_S))
        spark = make_session("bench-spark", local_master(MEMBERS), {}, folder)
        stack.callback(spark.stop)
        register(spark)
        beside = AsyncEngine()
        stack.callback(beside.close)
        console.print(
            f"Python {platform.python_version()}, pyspark {pyspark.__version__}, confluent-kafka "
            f"{confluent_kafka.__version__}, {os.cpu_count()} cores; broker, session, producer and handlers share them"
        )
        console.print(measure(Bench(broker, spark, folder), (SparkEngine(spark), beside), asked))
        console.print(
            f"{asked.pairs} alternating pairs, {asked.runs} loads of {asked.seconds:g} s; naive: {NAIVE_RECORDS:,} "
            f"records, a load of {NAIVE_LOAD}/s; {time.monotonic() - begun:.0f} s in all"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
