"""The group protocol frame by frame: members that fall silent, come back, are fenced, or never do their part."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from raw_client import RawClient, RawMember
from waiting import eventually

from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.describe_groups import DescribeGroupsRequest
from anabranch.broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch import Broker

REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


class Members:
    """Members of one fresh group, each on a connection of its own, and an observer beside them."""

    def __init__(self, bootstrap: str, stack: ExitStack) -> None:
        self._bootstrap = bootstrap
        self._stack = stack
        self.group = f"group-{secrets.token_hex(6)}"
        self.observer = self.connect()

    def connect(self) -> RawClient:
        return self._stack.enter_context(RawClient(self._bootstrap))

    def new(self, **options: object) -> RawMember:
        return RawMember(self.connect(), self.group, **options)

    def stable_pair(self, **options: object) -> tuple[RawMember, RawMember]:
        """A leader and a follower with the assignments b"one" and b"two"."""
        leader, follower = self.new(**options), self.new(**options)
        assert leader.join().error_code == 0
        follower.begin_join()
        eventually(lambda: leader.heartbeat() == REBALANCE, "the leader hears of the second member")
        joined, followed = leader.join(), follower.end_join()
        assert joined.leader == followed.leader == leader.member_id
        follower.begin_sync()
        given = leader.sync({leader.member_id: b"one", follower.member_id: b"two"})
        assert (given.error_code, given.assignment) == (0, b"one")
        assert follower.end_sync().assignment == b"two"
        return leader, follower

    def state(self) -> str:
        described = self.observer.ask(DescribeGroupsRequest(groups=[self.group])).groups[0]
        return str(described.group_state)

    def ids(self) -> set[str]:
        described = self.observer.ask(DescribeGroupsRequest(groups=[self.group])).groups[0]
        return {member.member_id for member in described.members}


@pytest.fixture
def members(anabranch_broker: Broker) -> Iterator[Members]:
    with ExitStack() as stack:
        yield Members(anabranch_broker.bootstrap, stack)


def test_two_members_get_what_their_leader_assigned(members: Members) -> None:
    """Join, sync, heartbeat: both are in one generation, the leader alone sees the members, each gets its own part."""
    leader, follower = members.stable_pair()
    assert leader.generation == follower.generation
    assert (leader.heartbeat(), follower.heartbeat()) == (0, 0)
    assert members.state() == "Stable"
    assert members.ids() == {leader.member_id, follower.member_id}


def test_a_stale_generation_is_refused(members: Members, anabranch_topic: str) -> None:
    """Fault 21: a member of an older generation may not heartbeat, sync or commit as if nothing had happened."""
    leader, follower = members.stable_pair()
    follower.generation -= 1
    assert follower.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert follower.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    assert follower.commit(anabranch_topic, 7) == ErrorCode.ILLEGAL_GENERATION
    assert members.observer.committed(members.group, anabranch_topic)[0] == -1
    assert leader.heartbeat() == 0, "nobody else is disturbed"


def test_an_unknown_member_is_refused(members: Members, anabranch_topic: str) -> None:
    """Fault 21: who is not in the group may not join as a member, heartbeat, sync, commit or leave."""
    leader, _ = members.stable_pair()
    stranger = members.new(member_id="nobody")
    stranger.generation = leader.generation
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == unknown
    assert stranger.sync().error_code == unknown
    assert stranger.commit(anabranch_topic, 7) == unknown
    assert stranger.leave() == unknown
    assert stranger.join().error_code == unknown
    assert members.observer.commit(members.group, anabranch_topic, 7) != 0, (
        "a commit from outside while there are members"
    )
    assert members.observer.committed(members.group, anabranch_topic)[0] == -1
    assert leader.heartbeat() == 0


def test_a_commit_between_join_and_sync_is_told_to_wait(members: Members, anabranch_topic: str) -> None:
    """In that state nobody knows who owns what: REBALANCE_IN_PROGRESS, and the offset is not stored."""
    member = members.new()
    member.join()
    assert member.commit(anabranch_topic, 3) == REBALANCE
    member.sync({member.member_id: b"all"})
    assert member.commit(anabranch_topic, 3) == 0
    assert members.observer.committed(members.group, anabranch_topic)[0] == 3


def test_a_leader_that_dies_before_it_syncs_does_not_stop_the_group(members: Members) -> None:
    """Fault 21: the leader joins and its process dies; when its session is over the other one leads and goes on."""
    leader, follower = members.new(session_ms=1000), members.new()
    leader.join()
    follower.begin_join()
    eventually(lambda: leader.heartbeat() == REBALANCE, "the leader hears of the second member")
    leader.begin_join()
    leader.end_join()
    follower.end_join()
    follower.begin_sync()
    leader.client.close()
    assert follower.end_sync().error_code == REBALANCE
    assert follower.join().leader == follower.member_id
    assert follower.sync({follower.member_id: b"all"}).assignment == b"all"


def test_a_leader_that_heartbeats_and_never_syncs_is_removed(members: Members) -> None:
    """Fault 21: a leader that lives but never assigns would hold the group for ever; the rebalance time-out ends it."""
    times = {"session_ms": 30_000, "rebalance_ms": 600}
    leader, follower = members.new(**times), members.new(**times)
    leader.join()
    follower.begin_join()
    eventually(lambda: leader.heartbeat() == REBALANCE, "the leader hears of the second member")
    leader.join()
    follower.end_join()
    follower.begin_sync()
    eventually(lambda: leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID, "the idle leader is removed")
    assert follower.end_sync().error_code == REBALANCE
    assert follower.join().leader == follower.member_id
    assert follower.sync({follower.member_id: b"all"}).assignment == b"all"


def test_a_client_that_asks_for_an_id_again_and_again_disturbs_nobody(members: Members) -> None:
    """Fault 21, "a member that joins every 100 ms": it never uses the id it was told, so the group stays Stable."""
    leader, follower = members.stable_pair()
    restless = members.new()
    for _ in range(100):
        told = restless.client.ask(restless.join_request(), 9)
        assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (leader.heartbeat(), follower.heartbeat()) == (0, 0)
    assert members.state() == "Stable"


def test_a_group_settles_although_old_clients_join_and_hang_up_again_and_again(members: Members) -> None:
    """Fault 21 with JoinGroup 3, which has no ids to hand out first: each join is a rebalance, none the last word."""
    member = members.new(session_ms=30_000)
    member.join()
    member.sync({member.member_id: b"all"})
    for _ in range(10):
        restless = members.new(session_ms=500)
        restless.begin_join(version=3)
        restless.client.close()

    def settled() -> bool:
        if member.heartbeat() == 0:
            return members.state() == "Stable" and members.ids() == {member.member_id}
        if member.join().error_code == 0:
            member.sync({member.member_id: b"all"})
        return False

    eventually(settled, "the group is stable with the one member that stayed")
    assert member.sync().assignment == b"all"


def test_a_member_that_falls_silent_is_removed_when_its_session_is_over(members: Members) -> None:
    """Its partitions go to those who live; a closed connection alone is not a leave."""
    leader, silent = members.new(session_ms=30_000), members.new(session_ms=700)
    leader.join()
    silent.begin_join()
    eventually(lambda: leader.heartbeat() == REBALANCE, "the leader hears of the second member")
    leader.join()
    silent.end_join()
    silent.begin_sync()
    leader.sync({leader.member_id: b"one", silent.member_id: b"two"})
    silent.end_sync()
    silent.client.close()
    assert members.ids() == {leader.member_id, silent.member_id}
    eventually(lambda: leader.heartbeat() == REBALANCE, "the silent member's session ends")
    assert [member.member_id for member in leader.join().members] == [leader.member_id]


def test_a_member_that_leaves_is_gone_at_once(members: Members) -> None:
    """Leaving is answered, the rest rebalances without waiting for a session to end; the last one leaves it Empty."""
    leader, follower = members.stable_pair(session_ms=30_000)
    assert follower.leave(version=1) == 0
    assert leader.heartbeat() == REBALANCE
    assert [member.member_id for member in leader.join().members] == [leader.member_id]
    assert leader.sync({leader.member_id: b"all"}).assignment == b"all"
    assert leader.leave() == 0
    assert members.state() == "Empty"


@pytest.mark.parametrize("leading", [True, False], ids=["the leader", "a follower"])
def test_a_static_member_that_comes_back_gets_its_assignment_without_a_rebalance(
    members: Members, leading: bool
) -> None:
    """KIP-345: same instance id, no member id: same generation, the stored assignment, nobody else hears of it."""
    leader, follower = members.new(instance_id="one"), members.new(instance_id="two")
    leader.join()
    follower.begin_join()
    eventually(lambda: leader.heartbeat() == REBALANCE, "the leader hears of the second member")
    leader.join()
    follower.end_join()
    follower.begin_sync()
    leader.sync({leader.member_id: b"one", follower.member_id: b"two"})
    follower.end_sync()
    gone, other = (leader, follower) if leading else (follower, leader)
    gone.client.close()
    back = members.new(instance_id=gone.instance_id)
    joined = back.join()
    assert (joined.error_code, joined.generation_id) == (0, other.generation)
    assert joined.member_id != gone.member_id
    assert joined.skip_assignment is leading, "KIP-814: a leader that comes back must not assign"
    assert back.sync().assignment == (b"one" if leading else b"two")
    assert (other.heartbeat(), back.heartbeat()) == (0, 0)


def test_the_former_self_of_a_static_member_is_fenced(members: Members, anabranch_topic: str) -> None:
    """FENCED_INSTANCE_ID in Join, Sync, Heartbeat and OffsetCommit: two processes must not both think they are it."""
    former = members.new(instance_id="one")
    former.join()
    former.sync({former.member_id: b"all"})
    present = members.new(instance_id="one")
    present.join()
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert former.heartbeat() == fenced
    assert former.sync().error_code == fenced
    assert former.commit(anabranch_topic, 9) == fenced
    assert former.leave() == fenced
    assert former.join().error_code == fenced
    assert present.sync().assignment == b"all"
    assert present.commit(anabranch_topic, 5) == 0
    assert members.observer.committed(members.group, anabranch_topic)[0] == 5


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_static_member_can_be_removed_by_its_instance_id_alone(members: Members, version: int) -> None:
    """LeaveGroup 3 and up, as an administrator sends it: no member id, only the instance id."""
    leader, follower = members.new(instance_id="one"), members.new(instance_id="two")
    leader.join()
    follower.begin_join()
    eventually(lambda: leader.heartbeat() == REBALANCE, "the leader hears of the second member")
    leader.join()
    follower.end_join()
    identities = [MemberIdentity(member_id="", group_instance_id=name) for name in ("two", "three")]
    answer = members.observer.ask(LeaveGroupRequest(group_id=members.group, members=identities), version)
    codes = [(member.group_instance_id, member.error_code) for member in answer.members]
    assert answer.error_code == 0
    assert codes == [("two", 0), ("three", ErrorCode.UNKNOWN_MEMBER_ID)]
    assert follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert members.ids() == {leader.member_id}


def test_the_protocol_that_all_know_and_most_prefer_is_chosen(members: Members) -> None:
    """Members name the assignors they know in the order they like them; one that nobody else knows is refused."""
    first = members.new(protocols=("sticky", "range", "roundrobin"))
    second = members.new(protocols=("roundrobin", "range"))
    third = members.new(protocols=("roundrobin", "range"))
    assert first.join().protocol_name == "sticky"
    second.begin_join()
    third.begin_join()
    eventually(lambda: first.heartbeat() == REBALANCE, "the first member hears of the others")
    first.begin_join()
    answers = [first.end_join(), second.end_join(), third.end_join()]
    if len({answer.generation_id for answer in answers}) > 1 or len(members.ids()) < 3:
        pytest.fail("members that had all joined were put into different generations")
    assert {answer.protocol_name for answer in answers} == {"roundrobin"}
    odd = members.new(protocols=("something-else",))
    answer = odd.client.ask(odd.join_request(), 9)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_what_cannot_be_a_member_is_refused(members: Members) -> None:
    """A session time-out out of bounds, an empty group name, no protocols: Kafka's codes, no group left behind."""
    hasty = members.new(session_ms=10)
    assert hasty.client.ask(hasty.join_request(), 9).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    nameless = RawMember(members.observer, "")
    assert nameless.client.ask(nameless.join_request(), 9).error_code == ErrorCode.INVALID_GROUP_ID
    mute = members.new(protocols=())
    assert mute.client.ask(mute.join_request(), 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert members.state() == "Dead", "a group that nobody ever joined does not exist"


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param("", id="empty"),
        pytest.param(None, id="null"),
        pytest.param("progress: ✓ 完了 𝄞", id="unicode"),
        pytest.param("x" * 4096, id="4,096 letters"),
        pytest.param("\N{MUSICAL SYMBOL G CLEF}" * 2048, id="4,096 UTF-16 units"),
        pytest.param("a\0b\n", id="control characters"),
    ],
)
def test_commit_metadata_is_given_back_exactly(members: Members, anabranch_topic: str, metadata: str | None) -> None:
    """Consumers keep their progress in it: what was sent comes back, whatever it is."""
    assert members.observer.commit(members.group, anabranch_topic, 42, metadata=metadata) == 0
    assert members.observer.committed(members.group, anabranch_topic) == (42, metadata)


@pytest.mark.parametrize("metadata", ["x" * 4097, "\N{MUSICAL SYMBOL G CLEF}" * 2049], ids=["letters", "UTF-16 units"])
def test_commit_metadata_that_is_too_long_is_refused(members: Members, anabranch_topic: str, metadata: str) -> None:
    """OFFSET_METADATA_TOO_LARGE, and what was committed before stays."""
    assert members.observer.commit(members.group, anabranch_topic, 1, metadata="kept") == 0
    refused = members.observer.commit(members.group, anabranch_topic, 2, metadata=metadata)
    assert refused == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert members.observer.committed(members.group, anabranch_topic) == (1, "kept")


def test_a_commit_for_what_does_not_exist_is_refused(members: Members, anabranch_topic: str) -> None:
    """A topic or partition that is not there is UNKNOWN_TOPIC_OR_PARTITION, and no topic is made for it."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert members.observer.commit(members.group, "there-is-no-such-topic", 1) == unknown
    assert members.observer.commit(members.group, anabranch_topic, 1, partition=99) == unknown
    assert members.observer.describe_topic("there-is-no-such-topic").error_code == unknown
