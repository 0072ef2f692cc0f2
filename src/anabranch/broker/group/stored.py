"""What follows when the log has answered, and how a group comes back from it.

A store that failed may or may not be on the log. Nothing that was not answered as durable has been acknowledged, and
whatever replaces it is stored later and wins.
"""

from collections.abc import Mapping
from dataclasses import replace

from anabranch.broker.group.effects import ReplyCommit, ReplyJoin, ReplyLeave, ReplySync
from anabranch.broker.group.machine import Group
from anabranch.broker.group.members import Member
from anabranch.broker.group.offsets import OffsetTable
from anabranch.broker.group.states import Cause, State
from anabranch.broker.group.storage import GroupRecord, OffsetRecord, TopicPartition
from anabranch.broker.group.stores import (
    AssignmentStore,
    CommitStore,
    MembershipStore,
    RemovalStore,
    ReplacementStore,
)
from anabranch.broker.wire.error_codes import ErrorCode

_RETRY = ErrorCode.COORDINATOR_NOT_AVAILABLE


def stored(group: Group, token: int, is_durable: bool) -> None:
    """Go on with what waited for this store."""
    pending = group.pending_stores.pop(token)
    if is_durable and isinstance(pending, AssignmentStore | ReplacementStore | MembershipStore):
        group.note_durable(token, pending.value)
    match pending:
        case AssignmentStore():
            _stored_assignment(group, token, pending, is_durable)
        case ReplacementStore():
            _stored_replacement(group, pending, is_durable)
        case MembershipStore():
            for reply in pending.replies:
                group.turn.reply(reply if is_durable else ReplyLeave(reply.token, _RETRY))
        case CommitStore():
            _stored_commit(group, token, pending, is_durable)
        case RemovalStore() if is_durable:
            group.offsets.dropped(token)


def _stored_assignment(group: Group, token: int, pending: AssignmentStore, is_durable: bool) -> None:
    """Hand the assignment out, or begin again if it could not be stored."""
    if token != group.assigning:
        return
    group.assigning = None
    if is_durable:
        group.move(Cause.ASSIGNED)
    for member in group.roster.members.values():
        if is_durable:
            member.assignment = pending.assignments[member.member_id]
        if member.sync_token is not None:
            refused = ReplySync(member.sync_token, _RETRY)
            group.answer_sync(member, group.sync_reply(member.sync_token, member) if is_durable else refused)
    if not is_durable:
        group.move_on()


def _stored_replacement(group: Group, pending: ReplacementStore, is_durable: bool) -> None:
    """Answer the join of a static member that came back, unless a rebalance or a third self has overtaken it."""
    member = group.roster.members.get(pending.member_id)
    if member is None or member.join_token != pending.token or group.state is not State.STABLE:
        return
    if not is_durable:
        group.answer_join(member, ReplyJoin(pending.token, _RETRY, ""))
        group.move_on()
        return
    member.is_new, member.knows_id = False, True
    reply = group.join_reply(pending.token, member)
    if pending.can_skip_assignment:
        reply = replace(reply, skip_assignment=reply.leader == member.member_id)
    else:
        reply = replace(reply, leader=pending.leader_before, members=())
    group.answer_join(member, reply)


def _stored_commit(group: Group, token: int, pending: CommitStore, is_durable: bool) -> None:
    if is_durable:
        group.offsets.apply(pending.records, token)
    if pending.token is None:
        return
    if is_durable:
        group.turn.reply(ReplyCommit(pending.token, ErrorCode.NONE, pending.results))
    else:
        results = tuple((topic, partition, _RETRY) for topic, partition, _ in pending.results)
        group.turn.reply(ReplyCommit(pending.token, _RETRY, results))


def restore(
    group: Group, stored_group: tuple[GroupRecord, bytes] | None, offsets: Mapping[TopicPartition, OffsetRecord]
) -> None:
    """Fill a fresh group from the log. Its members go on, with a full session from now."""
    group.offsets = OffsetTable(group.group_id, offsets)
    if stored_group is None:
        return
    record, value = stored_group
    group.is_written = True
    group.note_durable(0, value)
    group.generation = record.generation
    group.protocol_type, group.protocol_name = record.protocol_type, record.protocol_name
    for member_record in record.members:
        member = Member.from_record(member_record)
        group.roster.add(member)
        group.touch(member)
    if record.leader in group.roster.members:
        group.roster.leader = record.leader
    if record.members:
        group.state = State.STABLE
        if record.rebalancing:
            group.rebalance()
    group.changed_ms = record.changed_ms
