"""What the coordinator wants done: answers to requests, and entries for `__consumer_offsets`.

Effects are to be carried out in their order; stores above all: the log must hold them in the order they were given.
"""

from dataclasses import dataclass

from anabranch.broker.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member as the leader sees it: its metadata under the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ReplyJoin:
    """The answer to `Join`. `members` is filled for the leader only."""

    token: int
    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class ReplySync:
    """The answer to `Sync`."""

    token: int
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class ReplyHeartbeat:
    """The answer to `Heartbeat`."""

    token: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ReplyLeave:
    """The answer to `Leave`: one for the request, one per member (member id, instance id, error)."""

    token: int
    error: ErrorCode
    members: tuple[tuple[str, str | None, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyCommit:
    """The answer to `Commit`: (topic, partition, error) of each in the order of the request.

    `error` is that of the request as a whole; when it is not NONE, every partition has it too.
    """

    token: int
    error: ErrorCode
    partitions: tuple[tuple[str, int, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """Append these (key, value) entries to `__consumer_offsets`, as one; answer with `Stored(token, error)`.

    The token counts the coordinator's stores and has nothing to do with those of requests. A value of None is a
    tombstone.
    """

    token: int
    entries: tuple[tuple[bytes, bytes | None], ...]


Reply = ReplyJoin | ReplySync | ReplyHeartbeat | ReplyLeave | ReplyCommit
Effect = Reply | Store
