"""DescribeGroups: state, protocol and members of groups.

A group that is not known is answered as Dead, as Kafka does before version 6.
"""

from anabranch.broker.api.context import Context
from anabranch.broker.node import Node
from anabranch.broker.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(node: Node, request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    """Describe each group."""
    return DescribeGroupsResponse(groups=[_describe(node, group_id) for group_id in dict.fromkeys(request.groups)])


def _describe(node: Node, group_id: str) -> DescribedGroup:
    found = node.groups.coordinator.describe(group_id)
    if found is None:
        return DescribedGroup(group_id=group_id, group_state="Dead")
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state.value,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in found.members
        ],
    )
