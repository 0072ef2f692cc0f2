"""FindCoordinator: which broker coordinates a group. There is one broker: this one.

From version 4 several groups are asked for at once. Key type 0 is a group; 1 is a transaction, which is not served.
"""

from anabranch.broker.api.context import Context
from anabranch.broker.node import Node
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP = 0


def handle(node: Node, request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    """Name this broker."""
    host, port = node.advertised
    node_id, code, message = node.options.node_id, ErrorCode.NONE, None
    if request.key_type != _GROUP:
        node_id, host, port = -1, "", -1
        code, message = (
            ErrorCode.INVALID_REQUEST,
            "only groups have a coordinator here, transactions are not served yet",
        )
    if context.version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=node_id, host=host, port=port)
    coordinators = [
        Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message)
        for key in request.coordinator_keys
    ]
    return FindCoordinatorResponse(coordinators=coordinators)
