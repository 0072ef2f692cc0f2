"""A group of two members by hand, one of them static: what a library would hide about generations is seen here."""

from dataclasses import dataclass, replace

from torture_wire import Wire

from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from anabranch.broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from anabranch.broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

GROUP = "by-hand"
SESSION_MS = 120_000


@dataclass(frozen=True)
class Member:
    """What a member knows of itself."""

    member_id: str
    instance: str | None
    generation: int
    assignment: bytes


class GroupByHand:
    """Joins once; then only looks whether the group is still what it was."""

    def __init__(self, bootstrap: str) -> None:
        with Wire(bootstrap) as first, Wire(bootstrap) as second:
            alone = _join(first, "", "static-1")
            _sync(first, alone, {alone.member_id: b"everything"}, "static-1")
            second.send(_join_request("", None))
            told = second.receive(JoinGroupResponse)
            assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED, told
            second.send(_join_request(told.member_id, None))
            together = _join(first, alone.member_id, "static-1")
            joined = second.receive(JoinGroupResponse)
            assert joined.error_code == 0, joined
            assert joined.generation_id == together.generation_id
            plan = {together.member_id: b"left half", joined.member_id: b"right half"}
            leader_first = [(first, together, "static-1"), (second, joined, None)]
            if together.leader != together.member_id:
                leader_first.reverse()
            shares = {answer.member_id: _sync(wire, answer, plan, instance) for wire, answer, instance in leader_first}
        assert shares == plan
        self.static = Member(together.member_id, "static-1", together.generation_id, b"left half")
        self.dynamic = Member(joined.member_id, None, joined.generation_id, b"right half")

    def check(self, bootstrap: str) -> None:
        """Check that both members are there, in their generation, with their assignment."""
        with Wire(bootstrap) as wire:
            group = wire.ask(DescribeGroupsRequest(groups=[GROUP]), DescribeGroupsResponse).groups[0]
            assert group.group_state == "Stable", group
            shares = {member.member_id: bytes(member.member_assignment) for member in group.members}
            assert shares == {member.member_id: member.assignment for member in (self.static, self.dynamic)}
            for member in (self.static, self.dynamic):
                assert _heartbeat(wire, member) == 0, f"{member} is not known any more"
                older = replace(member, generation=member.generation - 1)
                assert _heartbeat(wire, older) == ErrorCode.ILLEGAL_GENERATION

    def restart_static(self, bootstrap: str) -> None:
        """Let the static member come back as a new process: same share, same generation, the old id is fenced."""
        before = self.static
        with Wire(bootstrap) as wire:
            answer = _join(wire, "", before.instance)
            assert answer.generation_id == before.generation, "a static member's return made a rebalance"
            share = _sync(wire, answer, {}, before.instance)
            assert share == before.assignment
            self.static = replace(before, member_id=answer.member_id)
            assert _heartbeat(wire, before) == ErrorCode.FENCED_INSTANCE_ID

    def commit(self, wire: Wire, topic: str, positions: dict[int, int]) -> int:
        """Commit as the static member; answer the error code."""
        member = self.static
        return wire.commit(GROUP, topic, positions, (member.generation, member.member_id, member.instance))


def _join_request(member_id: str, instance: str | None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="by-hand", metadata=b"")],
    )


def _join(wire: Wire, member_id: str, instance: str | None) -> JoinGroupResponse:
    answer = wire.ask(_join_request(member_id, instance), JoinGroupResponse)
    assert answer.error_code == 0, answer
    return answer


def _sync(wire: Wire, joined: JoinGroupResponse, plan: dict[str, bytes], instance: str | None) -> bytes:
    shares = [SyncGroupRequestAssignment(member_id=member, assignment=share) for member, share in plan.items()]
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        assignments=shares if joined.leader == joined.member_id else [],
    )
    answer = wire.ask(request, SyncGroupResponse)
    assert answer.error_code == 0, answer
    return bytes(answer.assignment)


def _heartbeat(wire: Wire, member: Member) -> int:
    request = HeartbeatRequest(
        group_id=GROUP, generation_id=member.generation, member_id=member.member_id, group_instance_id=member.instance
    )
    return wire.ask(request, HeartbeatResponse).error_code
