"""DeleteTopics: remove topics with their records and committed offsets. From version 6 also by id."""

from anabranch.broker.api.context import Context
from anabranch.broker.node import Node
from anabranch.broker.topics import TopicError
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from anabranch.broker.wire.schema import NO_ID


async def handle(node: Node, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    """Delete each topic on its own."""
    wanted = request.topics if context.version >= 6 else [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[await _delete(node, state) for state in wanted])


async def _delete(node: Node, wanted: DeleteTopicState) -> DeletableTopicResult:
    name, topic_id = wanted.name, wanted.topic_id
    topic = node.topics.get(name) if name is not None else node.topics.with_id(topic_id)
    if topic is not None:
        name, topic_id = topic.name, topic.topic_id
    result = DeletableTopicResult(name=name, topic_id=topic_id)
    if name is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_ID if topic_id != NO_ID else ErrorCode.INVALID_REQUEST
        result.error_message = "there is no topic with this id"
        return result
    try:
        await node.delete_topic(name)
    except TopicError as error:
        result.error_code, result.error_message = error.code, str(error)
    return result
