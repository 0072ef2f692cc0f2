"""What a group has committed, asked through a consumer that joins nothing.

The administration client has a call for it, `list_consumer_group_offsets`, and it must not be used: when the broker
answers that it is not, or not yet, the group's coordinator, librdkafka (2.16 as well) follows a null pointer and the
process is gone (confluentinc/librdkafka#5040). A new cluster answers so, and any cluster whose coordinator moves. A
consumer waits for the coordinator instead; a new one that asks once costs a few milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from anabranch.kafka.client import LIBRARY_LOGGER, translating
from anabranch.kafka.patience import COORDINATOR_MOVES, patiently

if TYPE_CHECKING:
    from anabranch.kafka.admin import Admin

COORDINATOR_S_MAX = 15.0


def commits_of(admin: Admin, group: str) -> list[TopicPartition]:
    """Return position and metadata of each partition that has a commit of the group; what was deleted is left out."""
    asked = [TopicPartition(topic.name, number) for topic in admin.topics() for number in range(topic.partitions)]
    if not asked:
        return []
    with translating(f"asking for the commits of group {group}", admin.connection):
        config = admin.connection.config({"client.id": "anabranch-cli", "enable.auto.commit": False})
        consumer = Consumer({**config, "group.id": group}, logger=LIBRARY_LOGGER)
        try:
            answers = patiently(
                lambda: consumer.committed(asked, timeout=COORDINATOR_S_MAX), COORDINATOR_MOVES, COORDINATOR_S_MAX
            )
        finally:
            consumer.close()
        return [answer for answer in answers if _has_commit(answer)]


def _has_commit(answer: TopicPartition) -> bool:
    if answer.error is None:
        return bool(answer.offset >= 0)
    if answer.error.name() == "UNKNOWN_TOPIC_OR_PART":
        return False
    raise KafkaException(answer.error)
