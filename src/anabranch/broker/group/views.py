"""What can be seen of groups from outside: descriptions, listings, statistics. All of it frozen."""

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.broker.group.machine import Group
from anabranch.broker.group.states import State
from anabranch.broker.group.storage import CLASSIC


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member as DescribeGroups shows it; metadata and assignment only while the group is Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as DescribeGroups shows it; `protocol_name` is empty unless the group is Stable."""

    group_id: str
    state: State
    protocol_type: str
    protocol_name: str
    generation: int
    leader: str | None
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as ListGroups shows it."""

    group_id: str
    state: State
    protocol_type: str
    group_type: str = CLASSIC


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """How much of everything there is; `rebalances` and `evictions` count from the start."""

    groups: Mapping[State, int]
    members: int
    pending_members: int
    offsets: int
    requests_waiting: int
    stores_in_flight: int
    timers: int
    rebalances: int
    evictions: int


def describe_group(group: Group) -> GroupDescription:
    """Describe a group."""
    is_stable = group.state is State.STABLE
    members = tuple(
        MemberDescription(
            member_id=one.member_id,
            instance_id=one.instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            metadata=one.metadata(group.protocol_name) if is_stable else b"",
            assignment=one.assignment if is_stable else b"",
        )
        for one in group.roster.members.values()
    )
    name = (group.protocol_name or "") if is_stable else ""
    return GroupDescription(
        group.group_id, group.state, group.protocol_type, name, group.generation, group.roster.leader, members
    )
