"""JoinGroup: become or stay a member of a group; answered when the rebalance has gathered everybody.

From version 4 a newcomer is first told its member id (KIP-394), from version 5 static members have an instance id
(KIP-345), from version 9 a returning static leader may be told to skip the assignment (KIP-814).
Version 0 has no rebalance time-out: the session's is used.
"""

import secrets

from anabranch.broker.api.context import Context
from anabranch.broker.group.effects import ReplyJoin
from anabranch.broker.group.events import Join
from anabranch.broker.node import Node
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember


async def handle(node: Node, request: JoinGroupRequest, context: Context) -> JoinGroupResponse:
    """Join, and wait for the generation."""
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if context.version == 0 or rebalance_timeout_ms <= 0:
        rebalance_timeout_ms = request.session_timeout_ms
    prefix = request.group_instance_id or context.client_id or "member"
    reply = await node.groups.ask(
        lambda token: Join(
            token=token,
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            session_timeout_s=request.session_timeout_ms / 1000,
            rebalance_timeout_s=rebalance_timeout_ms / 1000,
            requires_member_id=context.version >= 4,
            can_skip_assignment=context.version >= 9,
            new_member_id=f"{prefix}-{secrets.token_hex(16)}",
            reason=request.reason,
        )
    )
    assert isinstance(reply, ReplyJoin)
    protocol_name = reply.protocol_name
    if protocol_name is None and (context.version < 7 or reply.error is ErrorCode.NONE):
        protocol_name = ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )
