"""One group of the classic protocol: its state, its rebalances, and what waits for what.

A rebalance has two halves. Preparing: every member is asked, through its heartbeats, to join again; joins wait
until all have come or the longest rebalance time-out among the members is over. Completing: the joins are answered
with a new generation, the leader's assignment is awaited, stored, and handed out; then the group is Stable.
`states.py` has the table of moves, `joining.py` decides who may join, `attending.py` answers those who are in,
`committing.py` keeps the offsets, `stored.py` goes on when the log has answered.

Rules that hold after every step (`check_invariants` has them all):

- A join waits in Preparing, or in Stable while the log takes in the new id of a static member. A sync waits in
  Completing. Nothing else waits, apart from what waits for the log.
- A member that waits has no session timer, for it cannot heartbeat; every other one has. A newcomer that waits has a
  timer of its own, because its client may have given up and come again under another id.
- A member has an assignment only in Stable and, as a memory of it, in the Preparing that follows.
- The generation rises with every completed rebalance and never falls.

Awkward cases, decided:

- A second join or sync of a member while the first waits replaces it; the first is answered REBALANCE_IN_PROGRESS.
- The log answers an assignment after the group has moved on (1. leader syncs, 2. store, 3. another member joins, 4. the
  log answers): `assigning` names the store that counts, a rebalance clears it, so the answer changes nothing. What is
  then on the log is the assignment of a generation whose members were told to join again; a restart would hand it to
  those that ask for it, which is consistent.
- An assignment or a static member's new id that cannot be stored: those who wait are told COORDINATOR_NOT_AVAILABLE and
  the group rebalances, which ends in another store. Undoing the change was rejected: several may be in flight at once.
- A leave is stored as "these members are left and must rebalance", so that a crash right after it neither brings the
  leaver back nor leaves its partitions with nobody until the next rebalance.
- A member id that was handed out (KIP-394) does not hold up a rebalance as it does in Kafka: a client that asks for ids
  and never comes back would hold up everyone, and one that does come back joins the next rebalance anyway.
"""

from collections.abc import Mapping
from typing import Final

from anabranch.broker.group.effects import ReplyJoin, ReplyLeave, ReplySync
from anabranch.broker.group.members import Member, Roster
from anabranch.broker.group.offsets import OffsetTable
from anabranch.broker.group.options import GroupOptions
from anabranch.broker.group.states import Cause, State, next_state
from anabranch.broker.group.storage import CLASSIC, Entry, GroupKey, GroupRecord, encode
from anabranch.broker.group.stores import CommitStore, MembershipStore, PendingStore
from anabranch.broker.group.timers import Kind, Timer
from anabranch.broker.group.turn import Turn
from anabranch.broker.wire.error_codes import ErrorCode

REBALANCE_S_MIN: Final = 1.0
"""Between two looks at a group that nobody is there to lead; a client may have asked for a time-out of 0."""


class Group:
    """A group and its members. Its methods are the package's; others go through the coordinator."""

    def __init__(self, group_id: str, options: GroupOptions, turn: Turn) -> None:
        self.group_id = group_id
        self.options = options
        self.turn = turn
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.changed_ms = 0
        self.roster = Roster()
        self.offsets = OffsetTable(group_id)
        self.syncing: set[str] = set()
        """Members that were given this generation and have not asked for their assignment yet."""
        self.assigning: int | None = None
        """The store whose assignment makes this generation Stable."""
        self.rebalance_deadline = 0.0
        self.has_newcomers = False
        self.pending_stores: dict[int, PendingStore] = {}
        self.leaving: list[ReplyLeave] = []
        self.is_unstored = False
        """The membership has changed in a way that the log should know of at the end of this step."""
        self.is_written = False
        """The log may hold a record of this group."""
        self.durable: tuple[int, bytes] | None = None
        """The record that the log holds for certain, with the number of its store."""

    def refusal(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Say why a request is not one of a member of this generation. A newcomer is in none yet, whatever it says."""
        error = self.roster.identify(member_id, instance_id)
        if error:
            return error
        is_outside = generation != self.generation or self.roster.members[member_id].is_new
        return ErrorCode.ILLEGAL_GENERATION if is_outside else ErrorCode.NONE

    # Waiting

    def touch(self, member: Member) -> None:
        """Begin a member's session anew, unless it waits."""
        if member.join_token is None and member.sync_token is None:
            self.turn.timers.set(self._session(member), self.turn.now + member.session_timeout_s)

    def wait_join(self, member: Member, token: int) -> None:
        """Let a join wait for the next generation; it replaces one that waits already."""
        if member.join_token is not None:
            self.answer_join(member, ReplyJoin(member.join_token, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_token = token
        self.turn.wait(token, self.group_id, member.member_id)
        if member.is_new:
            self.turn.timers.set(self._session(member), self.turn.now + self.options.new_member_join_timeout_s)
        else:
            self.turn.timers.cancel(self._session(member))

    def wait_sync(self, member: Member, token: int) -> None:
        """Let a sync wait for the assignment; it replaces one that waits already."""
        if member.sync_token is not None:
            self.answer_sync(member, ReplySync(member.sync_token, ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        self.turn.wait(token, self.group_id, member.member_id)
        self.turn.timers.cancel(self._session(member))

    def answer_join(self, member: Member, reply: ReplyJoin) -> None:
        """Answer the join that waits; the member is on its own again."""
        member.join_token = None
        self.turn.reply(reply)
        self.touch(member)

    def answer_sync(self, member: Member, reply: ReplySync) -> None:
        """Answer the sync that waits; the member is on its own again."""
        member.sync_token = None
        self.turn.reply(reply)
        self.touch(member)

    def turn_away(self, member: Member, error: ErrorCode) -> None:
        """Answer whatever waits of a member that is not one any more, and forget its session."""
        if member.join_token is not None:
            self.answer_join(member, ReplyJoin(member.join_token, error, ""))
        if member.sync_token is not None:
            self.answer_sync(member, ReplySync(member.sync_token, error))
        self.turn.timers.cancel(self._session(member))

    def abandon(self, token: int, member_id: str | None) -> None:
        """Forget a request whose client is gone.

        A newcomer that was never told its id cannot come back under it: its place is freed at once. Any other member
        has its session to come back in.
        """
        if member_id is None:
            self._abandon_stored(token)
            return
        member = self.roster.members[member_id]
        if member.sync_token == token:
            member.sync_token = None
        else:
            member.join_token = None
        if member.knows_id or member.instance_id is not None:
            self.touch(member)
        else:
            self.remove(member_id)
            self.move_on()

    def _abandon_stored(self, token: int) -> None:
        for pending in self.pending_stores.values():
            if isinstance(pending, MembershipStore):
                pending.replies = [reply for reply in pending.replies if reply.token != token]
            elif isinstance(pending, CommitStore) and pending.token == token:
                pending.token = None

    # Rebalance

    def rebalance(self) -> None:
        """Ask all members to join again, unless they are being asked already."""
        if self.state is State.PREPARING:
            return
        for member in self.roster.members.values():
            if member.sync_token is not None:
                self.answer_sync(member, ReplySync(member.sync_token, ErrorCode.REBALANCE_IN_PROGRESS))
        self.assigning = None
        self.syncing.clear()
        self._cancel(Kind.SYNC)
        if self.state is State.EMPTY and self.options.rebalance_delay_s > 0:
            self._set(Kind.DELAY, self.turn.now + self.options.rebalance_delay_s)
        self.has_newcomers = False
        self.rebalance_deadline = self.turn.now + self.roster.rebalance_timeout_s()
        self._set(Kind.REBALANCE, self.rebalance_deadline)
        self.move(Cause.REBALANCE)

    def move_on(self) -> None:
        """Do what a change of members asks for: rebalance, and complete it when nobody is awaited."""
        self.rebalance()
        self.complete_if_joined()

    def complete_if_joined(self) -> None:
        """Complete the rebalance if all have joined, and an initial delay is over."""
        if self.roster.members and Timer(Kind.DELAY, self.group_id) in self.turn.timers:
            return
        if self.roster.all_joined():
            self._complete()

    def _complete(self) -> None:
        self._cancel(Kind.DELAY)
        self._cancel(Kind.REBALANCE)
        self.generation += 1
        self.turn.rebalances += 1
        if not self.roster.members:
            self.protocol_name = None
            self.move(Cause.DESERTED)
            self.is_unstored = self.is_written
            return
        self.roster.lead_by_joined()
        self.protocol_name = self.roster.vote()
        self.move(Cause.JOINED)
        for member in self.roster.members.values():
            member.assignment = b""
            if member.join_token is not None:
                member.is_new, member.knows_id = False, True
                self.syncing.add(member.member_id)
                self.answer_join(member, self.join_reply(member.join_token, member))
        self._set(Kind.SYNC, self.turn.now + self.roster.rebalance_timeout_s())

    def join_reply(self, token: int, member: Member) -> ReplyJoin:
        """Tell a member the current generation; the leader also who is in it."""
        leader = self.roster.leader or ""
        members = self.roster.listing(self.protocol_name) if member.member_id == leader else ()
        return ReplyJoin(
            token,
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            leader,
            members,
        )

    def sync_reply(self, token: int, member: Member) -> ReplySync:
        return ReplySync(token, ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    # Members that go

    def remove(self, member_id: str) -> None:
        """Take a member out; what waits of it is answered. `move_on` is to follow."""
        self.turn_away(self.roster.remove(member_id), ErrorCode.UNKNOWN_MEMBER_ID)
        self.syncing.discard(member_id)

    def forget_pending(self, member_id: str) -> None:
        """Take back a member id that was handed out and not used."""
        del self.roster.pending[member_id]
        self.turn.timers.cancel(Timer(Kind.PENDING, self.group_id, member_id))

    def expire(self, timer: Timer) -> None:
        """Do what is due."""
        match timer.kind:
            case Kind.SESSION:
                self._evict([timer.member_id])
                self.move_on()
            case Kind.PENDING:
                del self.roster.pending[timer.member_id]
            case Kind.DELAY:
                self._end_delay()
            case Kind.REBALANCE:
                self._end_rebalance()
            case Kind.SYNC if self.syncing:
                self._evict(sorted(self.syncing))
                self.move_on()

    def _evict(self, member_ids: list[str]) -> None:
        self.turn.evictions += len(member_ids)
        for member_id in member_ids:
            self.remove(member_id)

    def _end_delay(self) -> None:
        """Wait once more if somebody came meanwhile, at most until the rebalance time-out."""
        if self.has_newcomers and self.turn.now < self.rebalance_deadline:
            self.has_newcomers = False
            self._set(Kind.DELAY, min(self.turn.now + self.options.rebalance_delay_s, self.rebalance_deadline))
        else:
            self.complete_if_joined()

    def _end_rebalance(self) -> None:
        """Go on without the dynamic members that did not join; static ones stay while their session lasts."""
        members = self.roster.members.values()
        self._evict([one.member_id for one in members if one.join_token is None and one.instance_id is None])
        if self.roster.members and not self.roster.lead_by_joined():
            # Nobody is there to lead: static members that are away. One comes back, or their sessions end.
            self._set(Kind.REBALANCE, self.turn.now + max(REBALANCE_S_MIN, self.roster.rebalance_timeout_s()))
        else:
            self._complete()

    # The log

    def store(self, entries: tuple[Entry, ...], pending: PendingStore) -> int:
        """Ask for entries to be stored and remember what for."""
        token = self.turn.store(self.group_id, entries)
        self.pending_stores[token] = pending
        return token

    def key(self) -> bytes:
        """Give the key of this group's record."""
        return encode(GroupKey(self.group_id))

    def record(self, assignments: Mapping[str, bytes] | None = None) -> bytes:
        """Give this group's record: with this assignment, or as it is."""
        is_settled = assignments is not None or self.state in {State.STABLE, State.EMPTY}
        members = self.roster.members.values()
        return encode(
            GroupRecord(
                group_type=CLASSIC,
                protocol_type=self.protocol_type,
                protocol_name=self.protocol_name,
                generation=self.generation,
                leader=self.roster.leader,
                rebalancing=not is_settled,
                changed_ms=self.changed_ms,
                members=tuple(one.record((assignments or {}).get(one.member_id, one.assignment)) for one in members),
            )
        )

    def reply_when_stored(self, reply: ReplyLeave) -> None:
        """Answer a leave when the log knows of it."""
        self.turn.wait(reply.token, self.group_id, None)
        self.leaving.append(reply)
        self.is_unstored = True

    def flush(self) -> None:
        """Store the membership if this step has changed what the log should know; leaves wait for it."""
        if self.is_unstored:
            self.is_unstored = False
            value, replies, self.leaving = self.record(), self.leaving, []
            self.store(((self.key(), value),), MembershipStore(value, replies))

    def note_durable(self, token: int, value: bytes) -> None:
        """Remember the record that the log holds now; answers may come in any order."""
        if self.durable is None or self.durable[0] < token:
            self.durable = (token, value)

    def is_worthless(self) -> bool:
        """Whether nothing would be missed if this group were not there."""
        is_idle = self.state is State.EMPTY and not self.roster.pending and not self.pending_stores
        return is_idle and not self.offsets

    # Small things

    def move(self, cause: Cause) -> None:
        """Change the state, as the table says."""
        self.state = next_state(self.state, cause)
        self.changed_ms = self.turn.now_ms

    def _session(self, member: Member) -> Timer:
        return Timer(Kind.SESSION, self.group_id, member.member_id)

    def _set(self, kind: Kind, deadline: float) -> None:
        self.turn.timers.set(Timer(kind, self.group_id), deadline)

    def _cancel(self, kind: Kind) -> None:
        self.turn.timers.cancel(Timer(kind, self.group_id))
