"""What a group left with its commits: the metadata beside each position, and how old the next record there is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition

from anabranch.kafka.admin import REQUEST_TIMEOUT_S, Admin
from anabranch.kafka.client import LIBRARY_LOGGER, translated, translating
from anabranch.kafka.committed import commits_of
from anabranch.kafka.survey import metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch.kafka.groups import PartitionName

READ_S_MAX = 5.0  # for all partitions together: a command that answers late is no help
POLL_S = 0.2
_NOTHING_THERE = frozenset(
    {"_PARTITION_EOF", "_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"}
)
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # what a broker without topic ids answers
_FETCH_BYTES = 16_384  # a broker answers with one whole batch at least; more is not needed


def commit_metadata(admin: Admin, group: str) -> dict[PartitionName, str]:
    """Return the metadata of each committed position, as it was sent."""
    return {(each.topic, each.partition): metadata_of(each) for each in commits_of(admin, group)}


def topic_ids(admin: Admin, topics: Iterable[str]) -> dict[str, str]:
    """Return the ids of those topics that exist; empty where the cluster does not tell."""
    names = sorted(set(topics))
    if not names:
        return {}
    with translating("asking for topic ids"):
        answers = admin.client.describe_topics(TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S)
    ids: dict[str, str] = {}
    for name, answer in answers.items():
        try:
            topic_id = str(answer.result().topic_id)
        except KafkaException:
            continue  # deleted, or too old a broker: then nothing is believed about it
        ids[name] = "" if topic_id == _NO_TOPIC_ID else topic_id
    return ids


def timestamps_at(admin: Admin, positions: Mapping[PartitionName, int]) -> dict[PartitionName, int]:
    """Return the timestamp in milliseconds of the first record at or after each position, where one is found.

    Reads about one batch a partition and joins no group; gives up on what does not come within a few seconds.
    """
    if not positions:
        return {}
    with translating("setting up the consumer", admin.connection):
        consumer = Consumer(admin.connection.config(_settings()), logger=LIBRARY_LOGGER)
    try:
        with translating("finding the age of records"):
            consumer.assign([TopicPartition(*name, offset) for name, offset in positions.items()])
            return _first_timestamps(consumer, len(positions))
    finally:
        consumer.close()


def _first_timestamps(consumer: Consumer, count: int) -> dict[PartitionName, int]:
    found: dict[PartitionName, int] = {}
    given_up: set[PartitionName] = set()
    end = time.monotonic() + READ_S_MAX
    while len(found) + len(given_up) < count and time.monotonic() < end:
        for message in consumer.consume(count, POLL_S):
            name = str(message.topic()), int(message.partition() or 0)
            error = message.error()
            if error is None:
                kind, timestamp_ms = message.timestamp()
                if kind:
                    found.setdefault(name, timestamp_ms)
                else:
                    given_up.add(name)
            elif error.name() in _NOTHING_THERE:
                given_up.add(name)
            elif not error.retriable() and not error.name().startswith("_"):
                raise translated(error, f"reading {name[0]}/{name[1]}")
        done = [TopicPartition(*name) for name in (*found, *given_up)]
        consumer.pause([each for each in consumer.assignment() if each in done])
    return found


def _settings() -> dict[str, object]:
    return {
        "auto.offset.reset": "error",
        "client.id": "anabranch-cli",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.message.max.bytes": _FETCH_BYTES,
        "fetch.queue.backoff.ms": 5,  # else a full queue of one partition holds up the others for a second
        "fetch.wait.max.ms": 50,
        "group.id": "anabranch-cli",  # nothing is joined or committed, but the library wants a name
        "queued.min.messages": 1,
    }
