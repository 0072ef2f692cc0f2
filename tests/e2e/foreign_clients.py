"""The three Python clients of Kafka behind one small interface: write rows, read rows. All of them unmodified.

Records are written one by one with everything a record has, and read back with everything it has, so that tests can
compare bytes with bytes.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

with warnings.catch_warnings():
    # kafka-python loads its schemas through a function of importlib.resources that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

READ_S_MAX = 30.0
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

_KAFKA_PYTHON_NEEDS = {"snappy": ("snappy", "python-snappy"), "lz4": ("lz4", "lz4"), "zstd": ("zstandard", "zstandard")}


@dataclass(frozen=True, slots=True)
class Row:
    """A record as every client sees it."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


class Client(Protocol):
    """What all of them can do."""

    name: str

    def write(self, bootstrap: str, topic: str, rows: Sequence[Row], compression: str = "none") -> None:
        """Write rows with an idempotent producer and return when all of them are acknowledged."""
        ...

    def read(self, bootstrap: str, topic: str, count: int, partitions: int = 4) -> list[Row]:
        """Read the first `count` records of a topic, by partition and offset."""
        ...


class Confluent:
    """confluent-kafka, over librdkafka."""

    name = "confluent-kafka"

    def write(self, bootstrap: str, topic: str, rows: Sequence[Row], compression: str = "none") -> None:
        settings = {"linger.ms": 20, "compression.type": compression, "enable.idempotence": True}
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
        errors: list[Any] = []
        for row in rows:
            producer.produce(
                topic,
                key=row.key,
                value=row.value,
                partition=row.partition,
                timestamp=row.timestamp,
                headers=list(row.headers),
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(READ_S_MAX) == 0
        assert errors == []

    def read(self, bootstrap: str, topic: str, count: int, partitions: int = 4) -> list[Row]:
        settings = {"group.id": "reader", "enable.auto.commit": False, "check.crcs": True, "fetch.wait.max.ms": 50}
        consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **settings})
        start = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, number, start) for number in range(partitions)])
        rows: list[Row] = []
        end = time.monotonic() + READ_S_MAX
        while len(rows) < count and time.monotonic() < end:
            for message in consumer.consume(count - len(rows), 0.1):
                assert message.error() is None, message.error()
                rows.append(
                    Row(
                        message.partition(),
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                        tuple(message.headers() or ()),
                        message.offset(),
                    )
                )
        consumer.close()
        return _sorted(rows)


class KafkaPython:
    """kafka-python, written in Python."""

    name = "kafka-python"

    def write(self, bootstrap: str, topic: str, rows: Sequence[Row], compression: str = "none") -> None:
        need_compression(self, compression)
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            linger_ms=20,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=True,
        )
        futures = [
            producer.send(
                topic,
                key=row.key,
                value=row.value,
                partition=row.partition,
                timestamp_ms=row.timestamp,
                headers=list(row.headers),
            )
            for row in rows
        ]
        for future in futures:
            future.get(timeout=READ_S_MAX)
        producer.close()

    def read(self, bootstrap: str, topic: str, count: int, partitions: int = 4) -> list[Row]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=50
        )
        consumer.assign([kafka.TopicPartition(topic, number) for number in range(partitions)])
        rows: list[Row] = []
        end = time.monotonic() + READ_S_MAX
        while len(rows) < count and time.monotonic() < end:
            for records in consumer.poll(timeout_ms=100).values():
                rows += map(_row, records)
        consumer.close()
        return _sorted(rows)


class Aiokafka:
    """aiokafka, on asyncio."""

    name = "aiokafka"

    def write(self, bootstrap: str, topic: str, rows: Sequence[Row], compression: str = "none") -> None:
        async def main() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                linger_ms=20,
                compression_type=None if compression == "none" else compression,
                enable_idempotence=True,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        key=row.key,
                        value=row.value,
                        partition=row.partition,
                        timestamp_ms=row.timestamp,
                        headers=list(row.headers),
                    )
                    for row in rows
                ]
                await asyncio.gather(*futures)
            finally:
                await producer.stop()

        _run(main())

    def read(self, bootstrap: str, topic: str, count: int, partitions: int = 4) -> list[Row]:
        async def main() -> list[Row]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_max_wait_ms=50,
            )
            await consumer.start()
            rows: list[Row] = []
            try:
                consumer.assign([AiokafkaPartition(topic, number) for number in range(partitions)])
                end = time.monotonic() + READ_S_MAX
                while len(rows) < count and time.monotonic() < end:
                    for records in (await consumer.getmany(timeout_ms=100)).values():
                        rows += map(_row, records)
            finally:
                await consumer.stop()
            return _sorted(rows)

        return _run(main())


CLIENTS: tuple[Client, ...] = (Confluent(), KafkaPython(), Aiokafka())
CLIENT_NAMES = [client.name for client in CLIENTS]


def need_compression(client: Client, compression: str) -> None:
    """Skip the test when the client lacks a package for this compression."""
    if client.name == "kafka-python" and compression in _KAFKA_PYTHON_NEEDS:
        module, package = _KAFKA_PYTHON_NEEDS[compression]
        try:
            import_module(module)
        except ImportError:
            pytest.skip(f"kafka-python needs the package {package} for {compression}")


def _run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 2 * READ_S_MAX))


def _row(record: Any) -> Row:
    """What kafka-python and aiokafka call a record has the same fields."""
    headers = tuple((name, value) for name, value in record.headers)
    return Row(record.partition, record.key, record.value, record.timestamp, headers, record.offset)


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.partition, row.offset))
