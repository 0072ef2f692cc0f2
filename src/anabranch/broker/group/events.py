"""What happens to groups: requests, the log's answers, and time.

A `token` names the request that waits for an answer. It is opaque here, must be unique among those that wait, and comes
back in exactly one reply, unless the request was `Abandoned` first. Times are seconds.
"""

from dataclasses import dataclass

from anabranch.broker.wire.error_codes import ErrorCode

NO_TOPIC_ID = bytes(16)
"""The topic id of a commit that named none: Kafka's zero UUID."""


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup. An empty `member_id` asks for one; `new_member_id` is what to hand out then."""

    token: int
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_s: float
    rebalance_timeout_s: float
    requires_member_id: bool
    """JoinGroup 4 and up (KIP-394): a newcomer is told its id first and joins with it."""
    can_skip_assignment: bool
    """JoinGroup 9 and up (KIP-814): a returning static leader can be told not to assign."""
    new_member_id: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup. Only the leader's `assignments` count: (member id, bytes)."""

    token: int
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat: the member lives, and asks whether it must join again."""

    token: int
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup: (member id or "", instance id or None, reason or None) of each that goes."""

    token: int
    group_id: str
    members: tuple[tuple[str, str | None, str | None], ...]


@dataclass(frozen=True, slots=True)
class CommitOffset:
    """One partition's committed position, with metadata that is kept exactly as sent."""

    topic: str
    partition: int
    position: int
    leader_epoch: int
    metadata: str | None
    topic_id: bytes = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class Commit:
    """OffsetCommit. `generation` below 0 and no member: a commit from outside the group protocol."""

    token: int
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[CommitOffset, ...]


@dataclass(frozen=True, slots=True)
class ForgetTopics:
    """Topics were deleted: their offsets go, in all groups, also those still on their way to the log."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Truncated:
    """Logs end below what may be committed on them: (topic, partition, log end). Positions beyond are cut back."""

    log_ends: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The client that waited under this token is gone. No reply to it follows."""

    token: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The log's answer to a `Store` effect: durable (None, or NONE), or not."""

    token: int
    error: ErrorCode | None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: what is due happens. Send one at `next_deadline()`, after the requests that came before."""


Event = Join | Sync | Heartbeat | Leave | Commit | ForgetTopics | Truncated | Abandoned | Stored | Tick
