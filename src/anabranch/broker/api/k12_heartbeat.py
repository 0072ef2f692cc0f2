"""Heartbeat: a member says that it lives and hears whether it must join again."""

from anabranch.broker.api.context import Context
from anabranch.broker.group.effects import ReplyHeartbeat
from anabranch.broker.group.events import Heartbeat
from anabranch.broker.node import Node
from anabranch.broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(node: Node, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    """Pass it on."""
    reply = await node.groups.ask(
        lambda token: Heartbeat(
            token=token,
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
        )
    )
    assert isinstance(reply, ReplyHeartbeat)
    return HeartbeatResponse(error_code=reply.error)
