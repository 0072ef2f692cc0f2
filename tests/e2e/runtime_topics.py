"""Topics for tests of the runtime: records in, what is committed, records out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from anabranch.core.history import Sent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch.core.history import Recorder


def send(
    bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], recorder: Recorder | None = None
) -> None:
    """Write records with keys, each key in order, and tell the recorder."""
    producer = Producer({"bootstrap.servers": bootstrap, "max.in.flight": 1, "linger.ms": 1})
    sent: list[Sent] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        sent.append(Sent(topic, message.partition(), message.offset(), message.key()))

    for key, value in records:
        producer.produce(topic, value, key, on_delivery=delivered)
    assert producer.flush(30) == 0
    if recorder is not None:
        recorder.record(sent)


def numbered(keys: int, each: int) -> list[tuple[bytes, bytes]]:
    """Records of so many keys, numbered within each key, round-robin."""
    return [(b"key-%d" % key, b"%d" % number) for number in range(each) for key in range(keys)]


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """What a group has committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return {(each.topic, each.partition): each.offset for each in answer.topic_partitions if each.offset >= 0}


def log_ends(bootstrap: str, topic: str, partitions: int = 4) -> dict[tuple[str, int], int]:
    """Where the partitions of a topic end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks"})
    try:
        return {
            (topic, number): consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in range(partitions)
        }
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, count: int) -> list[Any]:
    """Read so many messages of a topic from its beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reads", "auto.offset.reset": "earliest"})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Any] = []
        for _ in range(100):
            found += [message for message in consumer.consume(count, 0.2) if message.error() is None]
            if len(found) >= count:
                return found
        raise AssertionError(f"{topic} has {len(found)} records, not {count}")
    finally:
        consumer.close()
