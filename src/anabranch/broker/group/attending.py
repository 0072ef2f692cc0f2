"""Heartbeats, syncs and leaves: what those ask who are in a group.

The answers by state are tables in `states.py`. A sync in Completing waits; the leader's brings the assignment, and is
answered with everyone else's when the log holds it.
"""

from anabranch.broker.group.effects import ReplyHeartbeat, ReplyLeave, ReplySync
from anabranch.broker.group.events import Heartbeat, Leave, Sync
from anabranch.broker.group.machine import Group
from anabranch.broker.group.states import HEARTBEAT_ANSWERS, SYNC_ANSWERS, State
from anabranch.broker.group.stores import AssignmentStore
from anabranch.broker.wire.error_codes import ErrorCode


def heartbeat(group: Group, event: Heartbeat) -> None:
    """Answer a heartbeat and let the session begin anew."""
    error = group.refusal(event.member_id, event.instance_id, event.generation)
    if not error:
        group.touch(group.roster.members[event.member_id])
        error = HEARTBEAT_ANSWERS[group.state]
    group.turn.reply(ReplyHeartbeat(event.token, error))


def sync(group: Group, event: Sync) -> None:
    """Hand out an assignment, or wait for it."""
    error = (
        group.refusal(event.member_id, event.instance_id, event.generation)
        or _protocol_refusal(group, event)
        or SYNC_ANSWERS[group.state]
    )
    if error:
        group.turn.reply(ReplySync(event.token, error))
        return
    member = group.roster.members[event.member_id]
    group.syncing.discard(member.member_id)
    if group.state is State.STABLE:
        group.touch(member)
        group.turn.reply(group.sync_reply(event.token, member))
        return
    group.wait_sync(member, event.token)
    if member.member_id == group.roster.leader and group.assigning is None:
        _store_assignment(group, dict(event.assignments))


def leave(group: Group, event: Leave) -> None:
    """Let members go. The answer waits for the log if the log knows the group."""
    answers: list[tuple[str, str | None, ErrorCode]] = []
    has_removed = False
    for member_id, instance_id, _ in event.members:
        if instance_id is None and member_id in group.roster.pending:
            group.forget_pending(member_id)
            answers.append((member_id, instance_id, ErrorCode.NONE))
            continue
        # KIP-345: version 3 and up may name a static member by its instance id alone.
        leaver = member_id or group.roster.statics.get(instance_id or "", "")
        error = group.roster.identify(leaver, instance_id)
        answers.append((member_id, instance_id, error))
        if not error:
            group.remove(leaver)
            has_removed = True
    if has_removed:
        group.move_on()
    reply = ReplyLeave(event.token, ErrorCode.NONE, tuple(answers))
    if has_removed and group.is_written:
        group.reply_when_stored(reply)
    else:
        group.turn.reply(reply)


def _protocol_refusal(group: Group, event: Sync) -> ErrorCode:
    """Compare the protocol that a sync names (version 5 and up) with the chosen one."""
    is_other_type = event.protocol_type is not None and event.protocol_type != group.protocol_type
    is_other_name = event.protocol_name is not None and event.protocol_name != group.protocol_name
    return ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_other_type or is_other_name else ErrorCode.NONE


def _store_assignment(group: Group, given: dict[str, bytes]) -> None:
    """Send the leader's assignment to the log; whoever it left out has nothing."""
    assignments = {member_id: given.get(member_id, b"") for member_id in group.roster.members}
    value = group.record(assignments)
    group.is_written = True
    group.assigning = group.store(((group.key(), value),), AssignmentStore(value, assignments))
