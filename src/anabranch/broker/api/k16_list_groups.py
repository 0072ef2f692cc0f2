"""ListGroups: all groups; from version 4 filtered by state, from version 5 by type ("classic" is the only one)."""

from anabranch.broker.api.context import Context
from anabranch.broker.node import Node
from anabranch.broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(node: Node, request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    """List what passes the filters; an empty filter passes everything. Names are compared without regard to case."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state.value,
            group_type=group.group_type,
        )
        for group in node.groups.coordinator.list_groups()
        if (not states or group.state.value.lower() in states) and (not types or group.group_type.lower() in types)
    ]
    return ListGroupsResponse(groups=groups)
