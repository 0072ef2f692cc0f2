"""The engine beside the ideal and beside a plain consumer loop: `make bench-engines`.

Each run is a process of its own on the same embedded broker and the same preloaded records. Ours and the plain loop
alternate; the median of the runs counts, and the spread stands beside it. The ideal is computed from each run's own
measured handler times: the longest chain of a key, or all calls divided by the concurrency, whichever is longer. Where
outputs are written, each record of a chain also waits for one acknowledgement, as the client library measured it in the
run, from its being handed over to the broker's answer; what a plain producer waits with nothing else under way stands
beside it. Then the parts: the tracker by itself, what a record costs by part of the code, and memory while half of the
keys fail for ever (five minutes; `--seconds 0` leaves it out).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import flat
import hot_path
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table
from tracker import settled_per_s
from works import WORKS, Work, value_of

from anabranch import Broker

PARTITIONS = 4
TARGETS = {"W1": 0.9, "W1o": 0.8, "W3": 0.9, "W3s": 0.95}
"""Of the ideal."""
RATES = {"W2": 60_000, "W4": 200_000}
"""Records per second, where the CPU is the limit."""
PLAIN_RECORDS = 400
ACKNOWLEDGEMENTS = 300
TRACKER_RATE = 5_000_000
HEADINGS = (
    "work",
    "rate (spread)",
    "against",
    "aim",
    "",
    "plain loop",
    "CPU per record",
    "RSS max",
    "received ÷ topic",
)
console = Console(width=140)


def preload(broker: Broker, topic: str, work: Work) -> None:
    """Write the work's records, idempotent, so that the topic's own order is the intended one."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1), NewTopic(f"{topic}.out", PARTITIONS, 1)])[topic].result()
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "on_delivery": on_delivery})
    for number in range(work.records):
        key, value = value_of(work, number)
        producer.produce(topic, value, key, partition=number % work.keys % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
            producer.flush(30) if number % 50_000 == 0 else None
    if producer.flush(60) or failed:
        raise SystemExit(f"the topic could not be filled: {failed[:1]}")


def ours(work: Work, broker: Broker, topic: str, number: int) -> dict[str, Any]:
    """Run the work once in a process of its own."""
    asked = {"work": work.name, "bootstrap": broker.bootstrap, "topic": topic, "group": f"{topic}-{number}"}
    child = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "works.py")],
        input=json.dumps(asked) + "\n",
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    if child.returncode:
        raise SystemExit(f"{work.name} failed:\n{child.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    if result["done"] != result["wanted"] or result["disorder"]:
        raise SystemExit(f"{work.name}: {result['done']} of {result['wanted']} done, {result['disorder']} out of order")
    logs = Path(broker.options.data_dir, topic).rglob("*.log")
    return {**result, "topic_bytes": sum(log.stat().st_size for log in logs)}


def plain(work: Work, broker: Broker, topic: str) -> float:
    """Answer records per second of the loop that people write first: poll, handle, next."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "plain",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    wanted = min(work.records, PLAIN_RECORDS) if work.sleep_s else work.records
    seen, begun = 0, 0.0
    while seen < wanted:
        for message in consumer.consume(1 if work.sleep_s else 10_000, 1.0):
            begun = begun or time.perf_counter()
            value = message.value() or b""
            int(value[:5]), int(value[6:14])
            if work.sleep_s:
                time.sleep(work.sleep_s)
            seen += 1
    rate = seen / (time.perf_counter() - begun)
    consumer.close()
    return rate


def acknowledgement_s(broker: Broker, topic: str) -> float:
    """Answer how long a plain idempotent producer waits for one acknowledgement, with nothing else under way."""
    waits: list[float] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for _ in range(ACKNOWLEDGEMENTS):
        begun = time.perf_counter()
        producer.produce(topic, b"x" * 100, b"key", partition=0)
        producer.flush(10)
        waits.append(time.perf_counter() - begun)
    return statistics.median(waits)


def ideal_s(result: dict[str, Any], work: Work) -> float:
    """Answer how long the best schedule would take with the times that this run measured."""
    wait_s = result["statistics"]["sink"]["latency_s"] if work.write else 0.0
    chain_s = float(result["chain_s"]) + wait_s * work.records / work.keys
    return max(chain_s, float(result["busy_s"]) / work.concurrency)


def measure(broker: Broker, work: Work, pairs: int) -> tuple[list[dict[str, Any]], list[float], float]:
    """Alternate ours and the plain loop; answer also what one acknowledgement takes, where outputs are written."""
    topic = f"{work.name}-{os.getpid()}"
    preload(broker, topic, work)
    ours(work, broker, topic, -1)
    results, plains = [], []
    for number in range(pairs):
        results.append(ours(work, broker, topic, number))
        plains.append(plain(work, broker, topic))
        console.print(
            f"  {work.name} {number + 1}/{pairs}: {results[-1]['done'] / results[-1]['wall_s']:,.0f}/s",
            end="\r" if console.is_terminal else "\n",
        )
    return results, plains, acknowledgement_s(broker, f"{topic}.out") if work.write else 0.0


def row(table: Table, work: Work, results: list[dict[str, Any]], plains: list[float], wait_s: float) -> None:
    """Add the row of one work."""
    rates = [result["done"] / result["wall_s"] for result in results]
    rate, beside = statistics.median(rates), statistics.median(plains)
    spread = f"{min(rates):,.0f}-{max(rates):,.0f}"
    cpu_us = statistics.median(result["cpu_s"] / result["calls"] * 1e6 for result in results)
    rss = max(result["rss_mib"] for result in results)
    if work.name in RATES:
        reached, aim = rate >= RATES[work.name], f"≥ {RATES[work.name]:,}/s"
        fraction = f"{rate / beside:.2f} x plain loop" if not work.sleep_s else "CPU-bound"
    else:
        ratio = statistics.median(ideal_s(result, work) / result["wall_s"] for result in results)
        reached, aim, fraction = ratio >= TARGETS[work.name], f"≥ {TARGETS[work.name]}", f"{ratio:.2f} of ideal"
        if wait_s:
            measured_s = statistics.median(result["statistics"]["sink"]["latency_s"] for result in results)
            fraction += f" (ack {measured_s * 1e3:.2f} ms; idle {wait_s * 1e3:.2f})"
    table.add_row(
        work.name,
        f"{rate:,.0f}/s ({spread})",
        fraction,
        aim,
        "reached" if reached else "MISSED",
        f"{beside:,.0f}/s",
        f"{cpu_us:.1f} µs",
        f"{rss:.0f} MiB",
        _received(results),
    )


def _received(results: list[dict[str, Any]]) -> str:
    """Answer all bytes that the client received by the bytes of the topic, both as they were on the wire."""
    ratios = [each["statistics"]["source"]["received_bytes"] / each["topic_bytes"] for each in results]
    return f"{statistics.median(ratios):.2f}"


def parts(broker: Broker, runs: list[dict[str, Any]]) -> None:
    """Measure the tracker by itself, and what a record of W4 costs by part of the code."""
    rate = settled_per_s()
    reached = "reached" if rate >= TRACKER_RATE else "MISSED"
    console.print(f"tracker: {rate / 1e6:.1f} M completions/s (aim ≥ {TRACKER_RATE / 1e6:.0f} M/s: {reached})")
    topic = f"hot-{os.getpid()}"
    preload(broker, topic, WORKS["W4"])
    asked = {"work": "W4", "bootstrap": broker.bootstrap, "topic": topic, "group": topic}
    library_us, all_us = (
        statistics.median(run[name] / run["done"] * 1e6 for run in runs) for name in ("library_cpu_s", "cpu_s")
    )
    hot_path.show(console, hot_path.profile(asked), all_us - library_us, library_us)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", help=f"which: {', '.join(WORKS)} [all]")
    parser.add_argument("--pairs", type=int, default=7, help="alternating runs of ours and the plain loop [7]")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long memory is watched [300]")
    asked = parser.parse_args()
    console.print(
        f"confluent-kafka {confluent_kafka.__version__}, {os.cpu_count()} cores, {asked.pairs} alternating pairs"
    )
    table = Table(title="ordered lanes (broker, client and handlers share the cores)")
    for heading in HEADINGS:
        table.add_column(heading)
    with Broker() as broker:
        for name in asked.works or WORKS:
            results, plains, wait_s = measure(broker, WORKS[name], asked.pairs)
            row(table, WORKS[name], results, plains, wait_s)
        console.print(table)
        if not asked.works:
            parts(broker, results)  # W4 is the last
    if asked.works or not asked.seconds:
        return 0
    return 0 if flat.measure(asked.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
