"""Consumer groups: list them, and show one with its members, committed positions and lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from anabranch.core.errors import UsageError
from anabranch.kafka.admin import REQUEST_TIMEOUT_S, Admin
from anabranch.kafka.client import translating
from anabranch.kafka.committed import commits_of
from anabranch.kafka.patience import COORDINATOR_MOVES, patiently

if TYPE_CHECKING:
    from collections.abc import Mapping

PartitionName = tuple[str, int]

_SPECS: Any = OffsetSpec  # has no types
_LATEST: Any = _SPECS.latest()


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group, as a list of groups shows it."""

    name: str
    state: str
    protocol: str


@dataclass(frozen=True, slots=True)
class Member:
    """A member, with what it reads."""

    name: str
    instance: str | None
    client: str
    host: str
    partitions: tuple[PartitionName, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a group is in one partition; None is what is not known."""

    topic: str
    partition: int
    committed: int | None
    log_end: int | None
    member: str | None

    @property
    def lag(self) -> int | None:
        """Return how many offsets are left; None when one of the two is not known."""
        if self.committed is None or self.log_end is None:
            return None
        return max(0, self.log_end - self.committed)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members and its position in each partition that it reads or has read."""

    name: str
    state: str
    assignor: str
    coordinator: str
    members: tuple[Member, ...]
    positions: tuple[Position, ...]


def list_groups(admin: Admin) -> list[GroupListing]:
    """Return all groups by name."""
    with translating("listing groups"):
        answer = admin.client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
        if answer.errors:
            raise answer.errors[0]
    listings = [
        GroupListing(each.group_id, _word(each.state), "simple" if each.is_simple_consumer_group else "consumer")
        for each in answer.valid
    ]
    return sorted(listings, key=lambda listing: listing.name)


def describe_members(admin: Admin, name: str) -> tuple[str, tuple[Member, ...]]:
    """Return the state of a group and its members; none when there is no such group."""
    found = _described(admin, name)
    return _word(found.state), tuple(_member(each) for each in found.members)


def _described(admin: Admin, name: str) -> Any:
    def ask() -> Any:
        return admin.client.describe_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)[name].result()

    with translating(f"describing group {name}"):
        return patiently(ask, COORDINATOR_MOVES, REQUEST_TIMEOUT_S)


def describe_group(admin: Admin, name: str) -> GroupDescription:
    """Return what the cluster knows about a group; raise UsageError if it knows none of that name."""
    found = _described(admin, name)
    members = tuple(_member(each) for each in found.members)
    committed = {(each.topic, each.partition): each.offset for each in commits_of(admin, name)}
    if _word(found.state) == "dead" and not committed:
        raise UsageError(f"no group {name!r}: `anabranch groups ls` shows what there is")
    owners = {partition: member.name for member in members for partition in member.partitions}
    partitions = sorted({*committed, *owners})
    log_ends = _log_ends(admin, partitions)
    positions = tuple(Position(*each, committed.get(each), log_ends.get(each), owners.get(each)) for each in partitions)
    coordinator = f"{found.coordinator.host}:{found.coordinator.port}" if found.coordinator else "none"
    return GroupDescription(
        name, _word(found.state), found.partition_assignor or "none", coordinator, members, positions
    )


def _member(found: Any) -> Member:
    assigned = found.assignment.topic_partitions if found.assignment else ()
    partitions = sorted((each.topic, each.partition) for each in assigned)
    return Member(found.member_id, found.group_instance_id, found.client_id, found.host, tuple(partitions))


def _log_ends(admin: Admin, partitions: list[PartitionName]) -> Mapping[PartitionName, int]:
    """Return the log ends of those partitions that still exist: a group outlives a deleted topic."""
    if not partitions:
        return {}
    asked = {TopicPartition(topic, partition): _LATEST for topic, partition in partitions}
    with translating("asking for log ends"):
        answers = admin.client.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
    ends: dict[PartitionName, int] = {}
    for partition, answer in answers.items():
        try:
            ends[partition.topic, partition.partition] = answer.result().offset
        except KafkaException as error:
            if error.args[0].name() not in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}:
                raise
    return ends


def _word(state: Any) -> str:
    return str(state.name).lower().replace("_", " ")
