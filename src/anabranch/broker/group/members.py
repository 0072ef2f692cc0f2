"""The members of one group, and the protocol that they share.

A roster keeps members in the order in which they came, the static ones also by instance id (KIP-345), and the member
ids that were handed out and not used yet (KIP-394). `support` counts for each protocol the members that know it, so
that a join need not look at all of them. The leader is always a member while there are any.

The ids handed out are bounded like the members; the oldest one goes when there are too many, and its client, if it
comes, is told to ask again. A client that asks every 100 ms thus costs a bounded amount and shuts nobody out.
"""

from collections import Counter
from dataclasses import dataclass

from anabranch.broker.group.effects import JoinedMember
from anabranch.broker.group.events import Join
from anabranch.broker.group.storage import MemberRecord
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.core.errors import InternalError

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Member:
    """One member: who it is, what it can do, what it has, and which of its requests wait."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: Protocols
    assignment: bytes = b""
    join_token: int | None = None
    sync_token: int | None = None
    is_new: bool = True
    """It has not been in any generation."""
    knows_id: bool = False
    """Its client was told the member id; nobody else can come back under it."""

    @classmethod
    def from_join(cls, event: Join, member_id: str) -> "Member":
        """Make the member that a join describes."""
        return cls(
            member_id=member_id,
            instance_id=event.instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            session_timeout_s=event.session_timeout_s,
            rebalance_timeout_s=event.rebalance_timeout_s,
            protocols=event.protocols,
            knows_id=bool(event.member_id),
        )

    @classmethod
    def from_record(cls, record: MemberRecord) -> "Member":
        """Make the member that was stored."""
        return cls(
            member_id=record.member_id,
            instance_id=record.instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            session_timeout_s=record.session_timeout_s,
            rebalance_timeout_s=record.rebalance_timeout_s,
            protocols=record.protocols,
            assignment=record.assignment,
            is_new=False,
            knows_id=True,
        )

    def record(self, assignment: bytes) -> MemberRecord:
        """Give what is stored of it."""
        return MemberRecord(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_s=self.session_timeout_s,
            rebalance_timeout_s=self.rebalance_timeout_s,
            protocols=self.protocols,
            assignment=assignment,
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        """Give what it says under this protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")


class Roster:
    """Who is in a group."""

    __slots__ = ("leader", "members", "pending", "statics", "support")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}
        self.pending: dict[str, None] = {}
        self.support: Counter[str] = Counter()
        self.leader: str | None = None

    def add(self, member: Member) -> None:
        """Take a member in; the first one leads."""
        if member.member_id in self.members:
            raise InternalError(f"member id {member.member_id!r} was given out twice: make each one unique")
        self.members[member.member_id] = member
        self.pending.pop(member.member_id, None)
        self.support.update(_names(member.protocols))
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        """Let a member go; if it led, the one that has been here longest does."""
        member = self.members.pop(member_id)
        self._unsupport(member.protocols)
        if member.instance_id is not None:
            del self.statics[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def update(self, member: Member, event: Join) -> None:
        """Take over what a member says about itself when it joins again."""
        self._unsupport(member.protocols)
        member.protocols = event.protocols
        self.support.update(_names(member.protocols))
        member.client_id, member.client_host = event.client_id, event.client_host
        member.session_timeout_s = event.session_timeout_s
        member.rebalance_timeout_s = event.rebalance_timeout_s

    def replace(self, old_id: str, event: Join) -> Member:
        """Put a static member that came back in the place of its former self: same assignment, new id."""
        member = self.members[old_id]
        was_leader = self.leader == old_id
        self.remove(old_id)
        successor = Member.from_join(event, event.new_member_id)
        successor.assignment, successor.is_new = member.assignment, member.is_new
        self.add(successor)
        if was_leader:
            self.leader = successor.member_id
        return successor

    def identify(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Say whether this is a member, and the one that holds its instance id now."""
        if instance_id is not None:
            holder = self.statics.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def shares_protocol(self, protocols: Protocols, besides: str | None) -> bool:
        """Whether one of these is known to all members, leaving out the one that says it."""
        own = self.members.get(besides) if besides is not None else None
        names = set(_names(own.protocols)) if own is not None else set()
        others = len(self.members) - (own is not None)
        return any(self.support[name] - (name in names) == others for name, _ in protocols)

    def vote(self) -> str:
        """Choose the protocol: each member votes for the first of its list that all know. The leader breaks a tie."""
        common = {name for name, count in self.support.items() if count == len(self.members)}
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        most = max(votes.values())
        leader = self.members[self.leader or next(iter(self.members))]
        return next(name for name, _ in leader.protocols if votes[name] == most)

    def all_joined(self) -> bool:
        """Whether every member waits for the next generation."""
        return all(member.join_token is not None for member in self.members.values())

    def lead_by_joined(self) -> bool:
        """See to it that a member that has joined leads; False when none has."""
        if self.leader is not None and self.members[self.leader].join_token is not None:
            return True
        joined = next((name for name, member in self.members.items() if member.join_token is not None), None)
        if joined is not None:
            self.leader = joined
        return joined is not None

    def rebalance_timeout_s(self) -> float:
        """The longest time that a member asked for."""
        return max((member.rebalance_timeout_s for member in self.members.values()), default=0.0)

    def listing(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """List the members as their leader needs them."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
            for member in self.members.values()
        )

    def _unsupport(self, protocols: Protocols) -> None:
        for name in _names(protocols):
            self.support[name] -= 1
            if not self.support[name]:
                del self.support[name]


def _names(protocols: Protocols) -> tuple[str, ...]:
    """The names of protocols, each once: a client may list one twice."""
    return tuple(dict.fromkeys(name for name, _ in protocols))
