"""Where the partitions of topics begin and end, which record is the first at a time, and what a group has committed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from anabranch.core.errors import UsageError
from anabranch.core.work import TopicPartition
from anabranch.kafka.admin import REQUEST_TIMEOUT_S, Admin
from anabranch.kafka.client import metadata, translating
from anabranch.kafka.committed import commits_of
from anabranch.kafka.patience import LEADER_MOVES, patiently

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_SPECS: Any = OffsetSpec  # has no types


def cluster_id(admin: Admin) -> str:
    """Ask for the cluster's id; empty when it has none."""
    return str(metadata(admin.client, admin.connection, admin.last_error).cluster_id or "")


def log_bounds(admin: Admin, topics: Sequence[str], pattern: str | None) -> dict[TopicPartition, tuple[int, int]]:
    """Ask for log_start and log_end of every partition of the topics, or of those whose names match the pattern."""
    known = {topic.name: topic.partitions for topic in admin.topics() if not topic.internal}
    names = [name for name in known if re.search(pattern, name)] if pattern is not None else list(topics)
    for name in names:
        if name not in known:
            raise UsageError(f"no topic {name!r}: create it with `anabranch topics create {name}`")
    partitions = [TopicPartition(name, number) for name in names for number in range(known[name])]
    starts = _offsets(admin, partitions, _SPECS.earliest())
    ends = _offsets(admin, partitions, _SPECS.latest())
    return {partition: (starts[partition], ends[partition]) for partition in partitions}


def positions_at(admin: Admin, partitions: Sequence[TopicPartition], time: datetime) -> dict[TopicPartition, int]:
    """Ask for the first record at or after a time in each partition; those that have none are left out."""
    found = _offsets(admin, partitions, _SPECS.for_timestamp(int(time.timestamp() * 1000)))
    return {partition: offset for partition, offset in found.items() if offset >= 0}


def committed_positions(admin: Admin, group: str) -> dict[TopicPartition, int]:
    """Ask for the positions that a group has committed."""
    return {TopicPartition(each.topic, each.partition): each.offset for each in commits_of(admin, group)}


def _offsets(admin: Admin, partitions: Sequence[TopicPartition], spec: Any) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    asked = {LibraryPartition(each.topic, each.partition): spec for each in partitions}

    def ask() -> dict[TopicPartition, int]:
        answers = admin.client.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
        return {TopicPartition(each.topic, each.partition): answers[each].result().offset for each in answers}

    with translating("asking for offsets"):
        return patiently(ask, LEADER_MOVES, REQUEST_TIMEOUT_S)
