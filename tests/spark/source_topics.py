"""Make, fill and look into topics with clients of their own: what the tests of source and sink compare with."""

from __future__ import annotations

import secrets
import struct
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from fastcrc import crc32

from anabranch.kafka.admin import Admin
from anabranch.kafka.client import LIBRARY_LOGGER, Connection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from confluent_kafka import Message

CONTROL_TRANSACTIONAL = 0x30
"""The attributes of a batch that holds a marker of a transaction."""
COMMIT_MARKER = (struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0))
"""Key and value of a marker."""


def new_topic(bootstrap: str, partitions: int = 1, name: str | None = None, **config: str) -> str:
    """Create a topic; settings with underscores for dots."""
    topic = name or f"topic-{secrets.token_hex(4)}"
    settings = {key.replace("_", "."): each for key, each in config.items()}
    Admin(Connection(bootstrap)).create([topic], partitions, settings)
    return topic


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic with all its records."""
    Admin(Connection(bootstrap)).delete([topic])


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Let a topic grow."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LIBRARY_LOGGER)
    admin.create_partitions([NewPartitions(topic, total)])[topic].result()


def delete_records(bootstrap: str, topic: str, before: int, partition: int = 0) -> None:
    """Move the start of a log."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LIBRARY_LOGGER)
    for answer in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        answer.result()


def fill(bootstrap: str, topic: str, values: Iterable[bytes], partition: int = 0, *, alone: bool = False) -> None:
    """Write values to a partition, in order, and wait until they are there; if wanted, each in a batch of its own."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "max.in.flight": 1}
    producer = Producer({**settings, **({"batch.num.messages": 1} if alone else {})}, logger=LIBRARY_LOGGER)
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0


def add_marker(bootstrap: str, topic: str) -> None:
    """Write what `mark` makes a marker of."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}, logger=LIBRARY_LOGGER)
    producer.produce(topic, COMMIT_MARKER[1], COMMIT_MARKER[0], partition=0)
    assert producer.flush(20) == 0


def mark(folder: Path, topic: str) -> int:
    """Make markers of transactions of the batches that look like one, in the files of a stopped broker.

    The embedded broker has no transactions yet, but it gives out what its log holds. Answers how many were made.
    """
    count = 0
    for path in (folder / topic / "0").glob("*.log"):
        log, at = bytearray(path.read_bytes()), 0
        while at < len(log):
            end = at + 12 + int.from_bytes(log[at + 8 : at + 12], "big")
            if COMMIT_MARKER[0] + bytes([2 * len(COMMIT_MARKER[1])]) + COMMIT_MARKER[1] in log[at:end]:
                log[at + 21 : at + 23] = CONTROL_TRANSACTIONAL.to_bytes(2, "big")
                log[at + 17 : at + 21] = crc32.iscsi(bytes(log[at + 21 : end])).to_bytes(4, "big")
                count += 1
            at = end
        path.write_bytes(log)
    return count


def contents(bootstrap: str, topic: str) -> dict[int, list[Message]]:
    """Read a topic from beginning to end, by partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "looking", "fetch.wait.max.ms": 20}
    consumer = Consumer({**settings, "enable.partition.eof": True}, logger=LIBRARY_LOGGER)
    found: dict[int, list[Message]] = {each: [] for each in consumer.list_topics(topic, 10).topics[topic].partitions}
    consumer.assign([TopicPartition(topic, each, 0) for each in found])
    ended: set[int | None] = set()
    while len(ended) < len(found):
        for message in consumer.consume(1000, 0.05):
            if message.error() is None:
                found[message.partition() or 0].append(message)
            elif message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
    consumer.close()
    return found


def values_of(found: Mapping[int, list[Message]]) -> list[bytes]:
    """Give all values, partition by partition."""
    return [message.value() for number in sorted(found) for message in found[number]]
