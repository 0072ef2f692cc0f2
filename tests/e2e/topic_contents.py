"""Fill topics and look into them, with a client of its own: what the tests of source and sink compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient
from waiting import eventually

from anabranch.core.work import TopicPartition
from anabranch.kafka.admin import Admin
from anabranch.kafka.client import LIBRARY_LOGGER, Connection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import Message


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> str:
    """Create a topic; settings with underscores for dots."""
    Admin(Connection(bootstrap)).create(
        [topic], partitions, {key.replace("_", "."): each for key, each in config.items()}
    )
    return topic


def fill(bootstrap: str, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
    """Write values to a partition, in order, and wait until they are there."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "max.in.flight": 1}  # in order, without half a second
    producer = Producer(settings, logger=LIBRARY_LOGGER)
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0


def contents(bootstrap: str, topic: str, count: int) -> list[Message]:
    """Read a topic from its beginning until so many records were found, and a moment longer."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "looking",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        },
        logger=LIBRARY_LOGGER,
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([LibraryPartition(topic, each, 0) for each in partitions])
    found: list[Message] = []
    ends: set[int | None] = set()

    def read() -> bool:
        for message in consumer.consume(1000, 0.05):
            if message.error() is None:
                found.append(message)
                ends.discard(message.partition())
            elif message.error().name() == "_PARTITION_EOF":
                ends.add(message.partition())
        return len(found) >= count and len(ends) == len(partitions)

    eventually(read, f"{count} records in {topic}")
    consumer.close()
    return found


def committed(bootstrap: str, group: str) -> Mapping[TopicPartition, tuple[int, str]]:
    """Ask for what a group has committed: position and metadata as they are stored."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LIBRARY_LOGGER)
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return {
        TopicPartition(each.topic, each.partition): (each.offset, (each.metadata or "").rstrip("\0"))
        for each in answer.topic_partitions
        if each.offset >= 0
    }


def commit(bootstrap: str, group: str, topic: str, partition: int, position: int, metadata: str = "") -> None:
    """Store a position for a group that has no members."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LIBRARY_LOGGER)
    offsets = [LibraryPartition(topic, partition, position, metadata)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[group].result()


def delete_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """Move the start of a log."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LIBRARY_LOGGER)
    for answer in admin.delete_records([LibraryPartition(topic, partition, before)]).values():
        answer.result()
