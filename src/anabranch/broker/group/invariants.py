"""The rules that hold between any two steps, each with its own sentence. Tests and the simulation check them always."""

from collections import Counter
from collections.abc import Iterable

from anabranch.broker.group.machine import Group
from anabranch.broker.group.members import Member
from anabranch.broker.group.states import State
from anabranch.broker.group.stores import ReplacementStore
from anabranch.broker.group.timers import Kind, Timer
from anabranch.broker.group.turn import Turn


def check_group(group: Group) -> None:
    """Assert all rules of one group."""
    _check_roster(group)
    _check_state(group)
    for member in group.roster.members.values():
        _check_member(group, member)
    _check_offsets(group)
    assert not group.is_unstored, "a change of members is stored in the step that made it"
    assert not group.leaving, "a leave is answered or waits for the log"


def _check_roster(group: Group) -> None:
    roster = group.roster
    statics = {one.instance_id: name for name, one in roster.members.items() if one.instance_id is not None}
    assert roster.statics == statics, "each instance id names the member that has it"
    support = Counter(name for one in roster.members.values() for name in {name for name, _ in one.protocols})
    assert roster.support == support, "support counts the members that know a protocol"
    assert (roster.leader in roster.members) if roster.members else roster.leader is None, "a member leads"
    assert not roster.pending.keys() & roster.members.keys(), "an id is handed out or used, not both"
    assert len(roster.pending) <= group.options.group_members_max, "ids handed out are bounded"
    for member_id in roster.pending:
        assert Timer(Kind.PENDING, group.group_id, member_id) in group.turn.timers, "an id handed out expires"


def _check_state(group: Group) -> None:
    members, timers = group.roster.members, group.turn.timers
    assert group.state is not State.DEAD, "a dead group is not kept"
    assert (group.state is State.EMPTY) == (not members), "Empty is the state without members, and the only one"
    is_preparing = group.state is State.PREPARING
    assert (Timer(Kind.REBALANCE, group.group_id) in timers) == is_preparing, "Preparing ends"
    if group.state is State.COMPLETING:
        is_awaited = group.assigning is not None or Timer(Kind.SYNC, group.group_id) in timers
        assert is_awaited, "Completing ends, by the log's answer or by time"
        assert not any(one.assignment for one in members.values()), "a new generation has no assignment yet"
    if group.state in {State.COMPLETING, State.STABLE}:
        assert all(group.protocol_name in dict(one.protocols) for one in members.values()), "all know the protocol"
    else:
        assert not group.syncing, "only a new generation is awaited to sync"
    assert group.syncing <= members.keys(), "only members are awaited to sync"
    if group.assigning is not None:
        assert group.state is State.COMPLETING, "only Completing waits for an assignment to be stored"
        assert group.assigning in group.pending_stores, "the log will answer"


def _check_member(group: Group, member: Member) -> None:
    coming_back = {one.token for one in group.pending_stores.values() if isinstance(one, ReplacementStore)}
    if member.join_token is not None:
        may_wait = group.state is State.PREPARING or (group.state is State.STABLE and member.join_token in coming_back)
        assert may_wait, "a join waits in Preparing, or in Stable for the log"
    if member.sync_token is not None:
        assert group.state is State.COMPLETING, "a sync waits in Completing"
    for token in (member.join_token, member.sync_token):
        if token is not None:
            assert group.turn.waiting.get(token) == (group.group_id, member.member_id), "a waiting request is known"
    is_waiting = member.join_token is not None or member.sync_token is not None
    has_session = Timer(Kind.SESSION, group.group_id, member.member_id) in group.turn.timers
    assert has_session == (not is_waiting or (member.is_new and member.join_token is not None)), (
        "a member that does not wait has a session; one that waits has not, unless it is new"
    )


def _check_offsets(group: Group) -> None:
    written = group.offsets.written
    for where, (record, sequence) in group.offsets.committed.items():
        assert where in written, "what is committed was written"
        assert sequence <= written[where][1], "nothing is committed that was written later"
        assert record.topic_id == written[where][0] or sequence < written[where][1], "one topic id per name"


def check_turn(turn: Turn, groups: Iterable[Group]) -> None:
    """Assert the rules between groups: no request, store or timer belongs to nobody."""
    waiting: set[int] = set()
    stores: set[int] = set()
    names = {""}
    for group in groups:
        names.add(group.group_id)
        stores |= group.pending_stores.keys()
        for member in group.roster.members.values():
            waiting |= {token for token in (member.join_token, member.sync_token) if token is not None}
    held = {token for token, (_, member_id) in turn.waiting.items() if member_id is not None}
    assert held == waiting, "a request that waits is held by one member"
    assert stores <= turn.stores.keys(), "a store that is awaited is on its way"
    assert turn.timers.groups() <= names, "a timer belongs to a group that is there"
