"""SyncGroup: the leader brings the assignment, everybody takes theirs. Answered when the assignment is stored."""

from anabranch.broker.api.context import Context
from anabranch.broker.group.effects import ReplySync
from anabranch.broker.group.events import Sync
from anabranch.broker.node import Node
from anabranch.broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


async def handle(node: Node, request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
    """Pass it on, and wait for the leader."""
    reply = await node.groups.ask(
        lambda token: Sync(
            token=token,
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple((entry.member_id, bytes(entry.assignment)) for entry in request.assignments),
        )
    )
    assert isinstance(reply, ReplySync)
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )
