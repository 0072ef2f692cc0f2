"""The broker's table of figures: `make bench-broker`.

Every figure stands beside the ideal of the same run (`ideal.py`) or is a count. The client is confluent-kafka in this
process; the broker runs in its own, so its CPU time and memory are its own. Machines differ and are shared: compare
ratios, not rates.
"""

import argparse
import os
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from ideal import copy_rate
from rich.console import Console
from rich.table import Table

from anabranch import Broker
from anabranch.broker.wire.codec import encode_bytes
from anabranch.broker.wire.headers import write_request_header
from anabranch.broker.wire.messages.metadata import MetadataRequest
from anabranch.broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.broker.wire.records import Record, build_batch

PARTITIONS = 4
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
console = Console(width=120)


@dataclass(frozen=True)
class Measured:
    """One piece of work: how long by the wall, how much CPU of the broker."""

    wall_s: float
    cpu_s: float


class Meter:
    """Reads a process's CPU time and memory from /proc."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def cpu_s(self) -> float:
        """Answer user and system time."""
        fields = (self._folder / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def rss_mib(self) -> float:
        """Answer the resident memory."""
        line = next(line for line in (self._folder / "status").read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    @contextmanager
    def measure(self) -> Iterator[list[Measured]]:
        """Give a list that holds the measurement when the block ends."""
        result: list[Measured] = []
        wall, cpu = time.perf_counter(), self.cpu_s()
        yield result
        result.append(Measured(time.perf_counter() - wall, self.cpu_s() - cpu))


def meter_of(broker: Broker) -> Meter:
    """Answer the meter of a running broker."""
    assert broker.pid is not None
    return Meter(broker.pid)


def make_topic(broker: Broker, name: str) -> None:
    """Create a topic with four partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()


def produce(broker: Broker, topic: str, count: int, size: int) -> Measured:
    """Send `count` records of `size` bytes with acks=all, idempotent; fail loudly if one is not acknowledged."""
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 256_000,
            "on_delivery": on_delivery,
        }
    )
    value = os.urandom(size)
    with meter_of(broker).measure() as measured:
        for number in range(count):
            while True:
                try:
                    producer.produce(topic, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 1000 == 0:
                producer.poll(0)
        left = producer.flush(120)
    if failed or left:
        raise SystemExit(f"{len(failed)} records failed, {left} unacknowledged; first: {failed[:1]}")
    return measured[0]


def fetch(broker: Broker, topic: str, count: int) -> Measured:
    """Read `count` records from the beginning of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 256_000,
            "check.crcs": False,
        }
    )
    with meter_of(broker).measure() as measured:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        seen = 0
        while seen < count:
            batch = consumer.consume(10_000, 1.0)
            if not batch:
                raise SystemExit(f"only {seen} of {count} records came back")
            seen += len(batch)
    consumer.close()
    return measured[0]


def one_record_requests(broker: Broker, topic: str, count: int, in_flight: int) -> Measured:
    """Send Produce requests of one 100-byte record over one raw connection, `in_flight` at a time."""
    batch = bytes(build_batch([Record(0, 0, None, bytes(100), ())]))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])
    body = encode_bytes(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 9)
    frame = write_request_header(0, 9, 1, "bench") + body
    frame = struct.pack(">i", len(frame)) + frame
    host, port = broker.bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb", 1 << 20)
        slots = threading.Semaphore(in_flight)

        def send() -> None:
            for _ in range(count):
                slots.acquire()
                connection.sendall(frame)

        thread = threading.Thread(target=send)
        with meter_of(broker).measure() as measured:
            thread.start()
            for _ in range(count):
                stream.read(struct.unpack(">i", stream.read(4))[0])
                slots.release()
        thread.join()
    return measured[0]


def start_to_metadata(rounds: int) -> list[float]:
    """Answer the seconds from starting the process to the first Metadata answer, several times."""
    times = []
    request = write_request_header(3, 9, 1, "bench") + encode_bytes(MetadataRequest(topics=None), 9)
    for _ in range(rounds):
        begun = time.perf_counter()
        with Broker() as broker:
            host, port = broker.bootstrap.rsplit(":", 1)
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                connection.recv(4)
                times.append(time.perf_counter() - begun)
    return times


def rate_rows(table: Table, scale: float, ideal_in: float, ideal_out: float) -> None:
    """Fill the rows of produce and fetch."""
    for flush in ("os", "always"):
        for size, count in ((1024, int(400_000 * scale)), (100, int(1_000_000 * scale))):
            with tempfile.TemporaryDirectory() as folder, Broker(folder, flush=flush) as broker:
                make_topic(broker, "bench")
                produce(broker, "bench", count // 20, size)
                measured = produce(broker, "bench", count, size)
                row(
                    table,
                    f"produce {size} B, acks=all, flush {flush}",
                    count * size / 1e6,
                    count,
                    measured,
                    ideal=ideal_in,
                )
                if flush == "os":
                    measured = fetch(broker, "bench", count)
                    row(table, f"fetch {size} B", count * size / 1e6, count, measured, ideal=ideal_out)


def row(table: Table, name: str, megabytes: float, count: int, measured: Measured, *, ideal: float) -> None:
    """Add a row and show it at once."""
    per_cpu = megabytes / max(measured.cpu_s, 1 / CLOCK_TICKS)
    console.print(f"  {name}: {per_cpu:,.0f} MB per CPU-second")
    table.add_row(
        name,
        f"{count / measured.wall_s:,.0f}",
        f"{megabytes / measured.wall_s:,.0f}",
        f"{per_cpu:,.0f}",
        f"{per_cpu / ideal:.2f}",
    )


def main() -> None:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the work to do (0.1 for a quick look)")
    scale = parser.parse_args().scale
    versions = f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"
    console.print(f"{versions}, {os.cpu_count()} cores")
    total = int(400e6 * scale)
    ideal_in = statistics.median(copy_rate("in", total) for _ in range(3))
    ideal_out = statistics.median(copy_rate("out", total) for _ in range(3))
    console.print(
        f"ideal, a bare copy: socket to file {ideal_in:,.0f}, file to socket {ideal_out:,.0f} MB per CPU-second"
    )

    table = Table(title="throughput (client and broker share the cores)")
    for heading in ("work", "records/s", "MB/s", "MB per broker CPU-second", "÷ ideal copy"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    rate_rows(table, scale, ideal_in, ideal_out)
    console.print(table)
    console.print(other_figures(scale))


def other_figures(scale: float) -> Table:
    """Answer the table of requests, start and memory."""
    table = Table(title="requests, start, memory")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    table.add_column("aim", justify="right")
    starts = start_to_metadata(7)
    shown = f"{statistics.median(starts):.2f} s (of 7: {min(starts):.2f}-{max(starts):.2f})"
    table.add_row("start to first Metadata answer", shown, "< 0.5 s")
    with Broker() as broker:
        meter = meter_of(broker)
        table.add_row("RSS idle", f"{meter.rss_mib():.0f} MiB", "< 60 MiB")
        make_topic(broker, "bench")
        count = int(50_000 * scale)
        for in_flight in (1, 16):
            measured = one_record_requests(broker, "bench", count, in_flight)
            rate = f"{count / measured.wall_s:,.0f}/s, {measured.cpu_s / count * 1e6:.0f} µs of broker CPU each"
            table.add_row(f"one-record Produce requests, {in_flight} in flight", rate, "")
        produce(broker, "bench", int(1_000_000 * scale), 1024)
        table.add_row(f"RSS after {1.024 * scale:.1f} GB produced", f"{meter.rss_mib():.0f} MiB", "")
        fetch(broker, "bench", int(1_000_000 * scale))
        table.add_row("RSS after reading it back", f"{meter.rss_mib():.0f} MiB", "")
    return table


if __name__ == "__main__":
    main()
