"""What a group does when the log has answered one of its stores."""

from dataclasses import dataclass

from anabranch.broker.group.effects import ReplyLeave
from anabranch.broker.group.storage import OffsetRecord, TopicPartition
from anabranch.broker.wire.error_codes import ErrorCode


@dataclass(slots=True)
class AssignmentStore:
    """The leader's assignment: it is handed out when it is durable."""

    value: bytes
    assignments: dict[str, bytes]


@dataclass(slots=True)
class ReplacementStore:
    """A static member came back under a new id: its join is answered when that is durable."""

    value: bytes
    member_id: str
    token: int
    leader_before: str
    can_skip_assignment: bool


@dataclass(slots=True)
class MembershipStore:
    """Members left: their leave is answered when that is durable."""

    value: bytes
    replies: list[ReplyLeave]


@dataclass(slots=True)
class CommitStore:
    """Offsets: they count, and their commit is answered, when they are durable."""

    records: dict[TopicPartition, OffsetRecord]
    token: int | None
    results: tuple[tuple[str, int, ErrorCode], ...]


@dataclass(slots=True)
class RemovalStore:
    """Tombstones of offsets: tried again until they are durable."""

    places: frozenset[TopicPartition]


PendingStore = AssignmentStore | ReplacementStore | MembershipStore | CommitStore | RemovalStore
