"""CreatePartitions: give topics more partitions, durably, or only check whether it could be done.

`count` is the new total. An assignment must name this broker once per new partition.
"""

from anabranch.broker.api.context import Context
from anabranch.broker.node import Node
from anabranch.broker.topics import TopicError
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(node: Node, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    """Grow each topic on its own."""
    results = []
    for wanted in request.topics:
        result = CreatePartitionsTopicResult(name=wanted.name)
        try:
            _grow(node, wanted, validate_only=request.validate_only)
        except TopicError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
    return CreatePartitionsResponse(results=results)


def _grow(node: Node, wanted: CreatePartitionsTopic, *, validate_only: bool) -> None:
    topic = node.topics.check_more_partitions(wanted.name, wanted.count)
    if wanted.assignments is not None:
        only = [node.options.node_id]
        added = wanted.count - len(topic.partitions)
        if [assignment.broker_ids for assignment in wanted.assignments] != [only] * added:
            message = f"an assignment for {added} new partitions must name broker {node.options.node_id} for each"
            raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if not validate_only:
        node.topics.add_partitions(wanted.name, wanted.count, node.now_ms())
