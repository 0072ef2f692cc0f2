"""InitProducerId: hand out a producer id that nobody ever had, with epoch 0.

A producer that asks again (KIP-360, from version 3) simply gets a new id, as Kafka does without transactions.

Not supported: transactional ids (INVALID_REQUEST until transactions are served).
"""

from anabranch.broker.api.context import Context
from anabranch.broker.log.errors import LogError
from anabranch.broker.node import Node
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(node: Node, request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    """Take the next id of the stored block."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        return InitProducerIdResponse(producer_id=node.catalog.next_producer_id(), producer_epoch=0)
    except LogError:
        # The block cannot be stored (disk full): the client asks again until there is room.
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
