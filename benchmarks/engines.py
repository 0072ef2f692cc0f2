"""The engine beside the ideal and beside a plain consumer loop: `make bench-engines`.

Each run is a process of its own on the same embedded broker and the same preloaded records. Ours and the plain loop
alternate; the median of the runs counts, and the spread stands beside it. The ideal is computed from each run's own
measured handler times: the longest chain of a key, or all calls divided by the concurrency, whichever is longer.
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
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table
from works import WORKS, Work, value_of

from anabranch import Broker

PARTITIONS = 4
TARGETS = {"W1": 0.9, "W1o": 0.8, "W3": 0.9, "W3s": 0.95}
"""Of the ideal."""
RATES = {"W2": 60_000, "W4": 200_000}
"""Records per second, where the CPU is the limit."""
PLAIN_RECORDS = 400
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
    return result


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


def ideal_s(result: dict[str, Any], work: Work) -> float:
    """Answer how long the best schedule would take with the handler times that this run measured."""
    return max(float(result["chain_s"]), float(result["busy_s"]) / work.concurrency)


def measure(broker: Broker, work: Work, pairs: int) -> tuple[list[dict[str, Any]], list[float]]:
    """Alternate ours and the plain loop."""
    topic = f"{work.name}-{os.getpid()}"
    preload(broker, topic, work)
    ours(work, broker, topic, -1)
    results, plains = [], []
    for number in range(pairs):
        results.append(ours(work, broker, topic, number))
        plains.append(plain(work, broker, topic))
        console.print(
            f"  {work.name} {number + 1}/{pairs}: {results[-1]['done'] / results[-1]['wall_s']:,.0f}/s", end="\r"
        )
    return results, plains


def row(table: Table, work: Work, results: list[dict[str, Any]], plains: list[float]) -> None:
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
    table.add_row(
        work.name,
        f"{rate:,.0f}/s ({spread})",
        fraction,
        aim,
        "reached" if reached else "MISSED",
        f"{beside:,.0f}/s",
        f"{cpu_us:.1f} µs",
        f"{rss:.0f} MiB",
        _received(results, work),
    )


def _received(results: list[dict[str, Any]], work: Work) -> str:
    """Answer received bytes by the topic's bytes, if the client counted them."""
    received = [result["statistics"].get("received_bytes") for result in results]
    if any(value is None for value in received):
        return "-"
    return f"{statistics.median(float(value) for value in received) / (work.records * 115):.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("works", nargs="*", help=f"which: {', '.join(WORKS)} [all]")
    parser.add_argument("--pairs", type=int, default=7, help="alternating runs of ours and the plain loop [7]")
    asked = parser.parse_args()
    names = asked.works or list(WORKS)
    console.print(
        f"confluent-kafka {confluent_kafka.__version__}, {os.cpu_count()} cores, {asked.pairs} alternating pairs"
    )
    table = Table(title="ordered lanes (broker, client and handlers share the cores)")
    headings = (
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
    for heading in headings:
        table.add_column(heading)
    with Broker() as broker:
        for name in names:
            row(table, WORKS[name], *measure(broker, WORKS[name], asked.pairs))
    console.print(table)


if __name__ == "__main__":
    main()
