"""Every limit of the coordinator is reached, and holds; options that cannot work are refused."""

from dataclasses import replace

import pytest

from anabranch.broker.group.coordinator import Coordinator
from anabranch.broker.group.effects import Effect, ReplyCommit, ReplyJoin, Store
from anabranch.broker.group.events import (
    Abandoned,
    Commit,
    CommitOffset,
    Event,
    Heartbeat,
    Join,
    Leave,
    Stored,
    Sync,
    Tick,
)
from anabranch.broker.group.options import GroupOptions
from anabranch.broker.group.states import State
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.core.errors import InternalError, UsageError


def join(token: int, group_id: str = "g", **fields: object) -> Join:
    event = Join(
        token, group_id, "", None, "client", "host", "consumer", (("range", b""),), 10, 30, False, False, f"m{token}"
    )
    return replace(event, **fields)


def commit(token: int, group_id: str = "g", metadata: str | None = None, position: int = 1) -> Commit:
    return Commit(token, group_id, -1, "", None, (CommitOffset("orders", 0, position, -1, metadata),))


def step(coordinator: Coordinator, event: Event, now: float = 0.0) -> list[Effect]:
    """Step, and let the log answer at once."""
    effects = coordinator.step(event, now, 0)
    for effect in list(effects):
        if isinstance(effect, Store):
            effects.extend(step(coordinator, Stored(effect.token, None), now))
    coordinator.check_invariants()
    return effects


def errors(effects: list[Effect]) -> list[ErrorCode]:
    return [effect.error for effect in effects if not isinstance(effect, Store)]


@pytest.mark.parametrize(("session_timeout_s", "is_taken"), [(4.9, False), (5, True), (20, True), (20.1, False)])
def test_a_session_outside_the_bounds_is_refused(session_timeout_s: float, is_taken: bool) -> None:
    """INVALID_SESSION_TIMEOUT, and nothing is kept of the group."""
    coordinator = Coordinator(GroupOptions(session_timeout_s_min=5, session_timeout_s_max=20))
    found = errors(step(coordinator, join(1, session_timeout_s=session_timeout_s)))
    assert found == [ErrorCode.NONE if is_taken else ErrorCode.INVALID_SESSION_TIMEOUT]
    assert (coordinator.describe("g") is not None) is is_taken


def test_a_full_group_takes_nobody_else_but_its_own_members() -> None:
    """GROUP_MAX_SIZE_REACHED for a newcomer in any state; members and returning static members are let in."""
    coordinator = Coordinator(GroupOptions(group_members_max=2))
    step(coordinator, join(1))
    step(coordinator, join(2, instance_id="static"))
    assert errors(step(coordinator, join(3))) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert errors(step(coordinator, join(4, member_id="m1"))) == [ErrorCode.NONE, ErrorCode.NONE]
    assert errors(step(coordinator, join(5))) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert errors(step(coordinator, join(6, instance_id="static"))) == []
    assert coordinator.statistics().members == 2


def test_groups_are_bounded_and_room_comes_back() -> None:
    """Joins and commits that would make one group too many are refused; existing groups go on."""
    coordinator = Coordinator(GroupOptions(groups_max=2))
    step(coordinator, join(1, "one"))
    step(coordinator, commit(2, "two"))
    assert errors(step(coordinator, join(3, "three"))) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert errors(step(coordinator, commit(4, "three"))) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert errors(step(coordinator, commit(5, "two"))) == [ErrorCode.NONE]
    step(coordinator, Leave(6, "one", (("m1", None, None),)))
    step(coordinator, Tick(), now=10_000)
    assert errors(step(coordinator, join(7, "three"), now=10_000)) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("metadata", "is_taken"),
    [
        ("a" * 4096, True),
        ("a" * 4097, False),
        ("ü" * 4096, True),
        ("\U0001f600" * 2048, True),
        ("\U0001f600" * 2048 + "a", False),
        ("\U0001f600" * 2049, False),
        ("", True),
        ("text\0", True),
        (None, True),
    ],
    ids=["units", "one-more", "wide", "pairs", "pairs-and-one", "pairs-more", "empty", "nul", "null"],
)
def test_metadata_is_measured_in_utf_16_units_and_kept_exactly(metadata: str | None, is_taken: bool) -> None:
    """Kafka counts Java characters; what fits comes back as it was sent, also after a restart."""
    coordinator = Coordinator()
    found = errors(step(coordinator, commit(1, metadata=metadata)))
    assert found == [ErrorCode.NONE]
    fetched = coordinator.fetch_offsets("g", {"orders": [0, 1]})
    assert [one.metadata for one in fetched.values()] == ([metadata] if is_taken else [])
    restored = Coordinator()
    restored.load_snapshot(coordinator.snapshot())
    restored.restore((), 0, 0)
    assert restored.fetch_offsets("g") == fetched


def test_one_offset_with_too_much_metadata_does_not_hold_up_the_others() -> None:
    """OFFSET_METADATA_TOO_LARGE is an answer per partition."""
    coordinator = Coordinator(GroupOptions(metadata_units_max=3))
    offsets = (CommitOffset("orders", 0, 5, -1, "long"), CommitOffset("orders", 1, 6, -1, "abc"))
    effects = step(coordinator, Commit(1, "g", -1, "", None, offsets))
    results = (("orders", 0, ErrorCode.OFFSET_METADATA_TOO_LARGE), ("orders", 1, ErrorCode.NONE))
    assert effects[-1] == ReplyCommit(1, ErrorCode.NONE, results)
    assert [one.position for one in coordinator.fetch_offsets("g").values()] == [6]


def test_a_client_that_joins_every_100_ms_for_an_hour_leaves_nothing_behind() -> None:
    """Ids asked for and never used: bounded meanwhile, gone in the end; the member beside it keeps its session."""
    coordinator = Coordinator(GroupOptions(group_members_max=20))
    step(coordinator, join(1))
    step(coordinator, Sync(2, "g", 1, "m1", None, None, None, (("m1", b"0"),)))
    now = 0.0
    for token in range(10, 36_010):
        now += 0.1
        effects = coordinator.step(join(token, requires_member_id=True), now, 0)
        assert errors(effects) == [ErrorCode.MEMBER_ID_REQUIRED]
        if token % 50 == 0:
            assert errors(coordinator.step(Heartbeat(5, "g", 1, "m1", None), now, 0)) == [ErrorCode.NONE]
        coordinator.step(Tick(), now, 0)
    statistics = coordinator.statistics()
    assert (statistics.pending_members, statistics.members, statistics.requests_waiting) == (20, 1, 0)
    assert statistics.rebalances == 1
    step(coordinator, Tick(), now + 9)
    step(coordinator, Tick(), now + 20)
    assert coordinator.statistics().pending_members == 0
    assert coordinator.statistics().timers == 1


def test_old_clients_that_join_and_go_every_100_ms_leave_nothing_behind() -> None:
    """A client before JoinGroup 4 is a new member with each try: it goes with its connection; the rest is bounded."""
    coordinator = Coordinator(GroupOptions(group_members_max=20))
    step(coordinator, join(1))
    step(coordinator, Sync(2, "g", 1, "m1", None, None, None, ()))
    for token in range(10, 2010):
        now = token / 10
        step(coordinator, join(token), now)
        if token % 3:
            step(coordinator, Abandoned(token), now)
        step(coordinator, Heartbeat(3, "g", 1, "m1", None), now)
        step(coordinator, Tick(), now)
        assert coordinator.statistics().members <= 20
    for _ in range(100):
        if (deadline := coordinator.next_deadline()) is not None:
            step(coordinator, Tick(), deadline)
    assert coordinator.next_deadline() is None
    assert coordinator.statistics().groups == {}
    assert coordinator.statistics().requests_waiting == 0


def test_a_group_that_came_to_nothing_is_not_kept() -> None:
    """A refused join, an id given back, an id that expired: no trace, and no timer but the check."""
    coordinator = Coordinator()
    step(coordinator, join(1, protocols=()))
    assert coordinator.list_groups() == ()
    step(coordinator, join(2, requires_member_id=True))
    assert [one.state for one in coordinator.list_groups()] == [State.EMPTY]
    step(coordinator, Tick(), now=10)
    assert coordinator.list_groups() == ()
    step(coordinator, Tick(), now=600)
    assert coordinator.next_deadline() is None


def test_a_member_id_that_is_given_out_twice_is_noticed() -> None:
    """The ids come from outside; two members under one would be one member with two clients."""
    coordinator = Coordinator()
    step(coordinator, join(1))
    with pytest.raises(InternalError, match="given out twice"):
        coordinator.step(join(2, new_member_id="m1"), 0, 0)


def test_a_store_that_was_never_asked_for_is_noticed() -> None:
    """An answer counted twice could acknowledge what is not there."""
    coordinator = Coordinator()
    step(coordinator, commit(1))
    with pytest.raises(InternalError, match="answer each store once"):
        coordinator.step(Stored(1, None), 0, 0)


def test_groups_are_restored_before_the_first_step_only() -> None:
    """A restore into a coordinator that runs would mix two pasts."""
    coordinator = Coordinator()
    step(coordinator, commit(1))
    with pytest.raises(InternalError, match="make a new coordinator"):
        coordinator.restore((), 0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"session_timeout_s_min": 0},
        {"session_timeout_s_min": 10, "session_timeout_s_max": 5},
        {"rebalance_delay_s": -1},
        {"group_members_max": 0},
        {"groups_max": 0},
        {"offsets_check_interval_s": 0},
        {"new_member_join_timeout_s": 0},
        {"metadata_units_max": -1},
        {"offsets_retention_s": -1},
    ],
)
def test_options_that_cannot_work_are_refused_by_name(fields: dict[str, float]) -> None:
    """The message names an option and what to do about it."""
    with pytest.raises(UsageError, match=next(iter(fields))):
        GroupOptions(**fields)


def test_offsets_are_kept_for_ever_when_asked_to() -> None:
    """Without retention only deleting the topic removes an offset."""
    coordinator = Coordinator(GroupOptions(offsets_retention_s=None))
    step(coordinator, commit(1))
    coordinator.step(Tick(), 1e9, 10**12)
    assert len(coordinator.fetch_offsets("g")) == 1
    assert coordinator.committed_topics() == {"orders": {bytes(16)}}


def test_a_join_is_told_who_it_is_and_what_is_there() -> None:
    """The description has what DescribeGroups needs: metadata and assignment while Stable, neither before."""
    coordinator = Coordinator()
    reply = step(coordinator, join(1, protocols=(("range", b"topics"),), instance_id="i"))[0]
    assert isinstance(reply, ReplyJoin)
    found = coordinator.describe("g")
    assert found is not None
    assert (found.protocol_name, found.members[0].metadata, found.members[0].assignment) == ("", b"", b"")
    step(coordinator, Sync(2, "g", 1, "m1", "i", None, None, (("m1", b"share"),)))
    found = coordinator.describe("g")
    assert found is not None
    assert (found.state, found.protocol_type, found.protocol_name) == (State.STABLE, "consumer", "range")
    member = found.members[0]
    assert (member.metadata, member.assignment, member.instance_id) == (b"topics", b"share", "i")
    assert (member.client_id, member.client_host) == ("client", "host")
    assert coordinator.describe("unknown") is None
