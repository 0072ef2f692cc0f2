"""Who may join a group, and what a join sets off.

Four kinds come: a newcomer without an id, one that was just told its id, a member that joins again, and a static
member that lost its id in a restart (KIP-345). Newcomers and changes set off a rebalance; a follower that repeats
itself is told the current generation again, since all it missed is the answer. A leader that joins again in Stable
wants a rebalance: it has seen the topics change.

The static member in Stable is the case that must not set off anything: 1. it comes with its instance id and no
member id; 2. it takes the place of its former self, which is fenced from then on; 3. the log takes in the new id;
4. the join is answered with the current generation and the sync that follows gets the old assignment. If it led,
clients before version 9 are told that the *old* id leads, so that they do not assign; later ones are told to skip
it (KIP-814). Only a change of the chosen protocol forces a rebalance; changed metadata does not, as in Kafka: after
a restart it always differs.
"""

from anabranch.broker.group.effects import ReplyJoin
from anabranch.broker.group.events import Join
from anabranch.broker.group.machine import Group
from anabranch.broker.group.members import Member
from anabranch.broker.group.states import State
from anabranch.broker.group.stores import ReplacementStore
from anabranch.broker.group.timers import Kind, Timer
from anabranch.broker.wire.error_codes import ErrorCode


def join(group: Group, event: Join) -> None:
    """Decide a join: refuse it, answer it, or let it wait."""
    roster = group.roster
    if event.member_id:
        is_pending = event.instance_id is None and event.member_id in roster.pending
        error = ErrorCode.NONE if is_pending else roster.identify(event.member_id, event.instance_id)
        former = None if is_pending else event.member_id
    else:
        error = ErrorCode.NONE
        former = roster.statics.get(event.instance_id) if event.instance_id is not None else None
    error = error or _refusal(group, event, former)
    if error:
        group.turn.reply(ReplyJoin(event.token, error, event.member_id))
    elif former is None:
        _join_first(group, event)
    elif event.member_id:
        _join_again(group, event, roster.members[former])
    else:
        _come_back(group, event, roster.members[former])


def _refusal(group: Group, event: Join, former: str | None) -> ErrorCode:
    """Say why this client cannot be with the others, leaving out the member that it already is."""
    others = len(group.roster.members) - (former is not None)
    is_other_type = others > 0 and event.protocol_type != group.protocol_type
    if not event.protocol_type or is_other_type or not group.roster.shares_protocol(event.protocols, former):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if former is None and others >= group.options.group_members_max:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    return ErrorCode.NONE


def _join_first(group: Group, event: Join) -> None:
    """Take a newcomer in, or only tell it its id if its version wants that (KIP-394)."""
    if not event.member_id and event.instance_id is None and event.requires_member_id:
        _hand_out_id(group, event)
        return
    if event.member_id:
        group.forget_pending(event.member_id)
    member = Member.from_join(event, event.member_id or event.new_member_id)
    group.roster.add(member)
    if len(group.roster.members) == 1:
        group.protocol_type = event.protocol_type
    group.has_newcomers = True
    group.wait_join(member, event.token)
    group.move_on()


def _hand_out_id(group: Group, event: Join) -> None:
    pending = group.roster.pending
    if len(pending) >= group.options.group_members_max:
        group.forget_pending(next(iter(pending)))
    pending[event.new_member_id] = None
    timer = Timer(Kind.PENDING, group.group_id, event.new_member_id)
    group.turn.timers.set(timer, group.turn.now + event.session_timeout_s)
    group.turn.reply(ReplyJoin(event.token, ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id))


def _join_again(group: Group, event: Join, member: Member) -> None:
    """Let a member into the next generation, or tell it the current one again."""
    is_same = event.protocols == member.protocols
    is_leader = member.member_id == group.roster.leader
    if is_same and (group.state is State.COMPLETING or (group.state is State.STABLE and not is_leader)):
        group.touch(member)
        group.turn.reply(group.join_reply(event.token, member))
        return
    group.roster.update(member, event)
    if len(group.roster.members) == 1:
        group.protocol_type = event.protocol_type
    group.wait_join(member, event.token)
    group.move_on()


def _come_back(group: Group, event: Join, former: Member) -> None:
    """Put a static member in its old place under a new id."""
    leader_before = group.roster.leader or ""
    group.turn_away(former, ErrorCode.FENCED_INSTANCE_ID)
    group.syncing.discard(former.member_id)
    member = group.roster.replace(former.member_id, event)
    group.wait_join(member, event.token)
    if group.state is not State.STABLE or group.roster.vote() != group.protocol_name:
        group.move_on()
        return
    value = group.record()
    pending = ReplacementStore(value, member.member_id, event.token, leader_before, event.can_skip_assignment)
    group.store(((group.key(), value),), pending)
