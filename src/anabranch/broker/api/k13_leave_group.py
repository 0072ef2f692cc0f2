"""LeaveGroup: members go. From version 3 several at once, static ones by instance id, also without a member id."""

from anabranch.broker.api.context import Context
from anabranch.broker.group.effects import ReplyLeave
from anabranch.broker.group.events import Leave
from anabranch.broker.node import Node
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse


async def handle(node: Node, request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    """Remove them; before version 3 the one member's error is the answer's."""
    several = context.version >= 3
    members = (
        tuple((member.member_id, member.group_instance_id, member.reason) for member in request.members)
        if several
        else ((request.member_id, None, None),)
    )
    reply = await node.groups.ask(lambda token: Leave(token=token, group_id=request.group_id, members=members))
    assert isinstance(reply, ReplyLeave)
    error = reply.error
    if not several and error is ErrorCode.NONE and reply.members:
        error = reply.members[0][2]
    return LeaveGroupResponse(
        error_code=error,
        members=[
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for member_id, instance_id, code in reply.members
        ],
    )
