"""CreateTopics: make topics with partitions and configs, durably, or only check whether it could be done.

- A count of -1 means the broker's default (KIP-464). With an explicit assignment its length is the count, and it must
  name this broker.
- A replication factor other than 1 (or -1) is refused: there is one broker.
- From version 5 the answer has the configs that are in force, from version 7 the topic's id.
"""

from collections import Counter

from anabranch.broker.api.context import Context
from anabranch.broker.api.k32_describe_configs import topic_values
from anabranch.broker.node import Node
from anabranch.broker.topics import TopicError
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def handle(node: Node, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    """Create each topic on its own; one that is refused does not stop the others."""
    names = Counter(topic.name for topic in request.topics)
    results = []
    for wanted in request.topics:
        try:
            if names[wanted.name] > 1:
                raise TopicError(ErrorCode.INVALID_REQUEST, f"topic {wanted.name} is named twice in one request")
            results.append(_create(node, wanted, validate_only=request.validate_only))
        except TopicError as error:
            results.append(CreatableTopicResult(name=wanted.name, error_code=error.code, error_message=str(error)))
    return CreateTopicsResponse(topics=results)


def _create(node: Node, wanted: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    count = _count(node, wanted)
    configs = {config.name: config.value for config in wanted.configs}
    result = CreatableTopicResult(name=wanted.name, error_message=None, num_partitions=count, replication_factor=1)
    if validate_only:
        checked = node.topics.check_new(wanted.name, count, configs)
    else:
        topic = node.topics.create(wanted.name, count, configs, node.now_ms())
        result.topic_id, checked = topic.topic_id, dict(topic.configs)
    result.configs = [
        CreatableTopicConfigs(name=row.name, value=value, config_source=source)
        for row, value, source in topic_values(checked, node.options)
    ]
    return result


def _count(node: Node, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        if any(assignment.broker_ids != [node.options.node_id] for assignment in wanted.assignments):
            raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is {node.options.node_id}")
        if sorted(assignment.partition_index for assignment in wanted.assignments) != list(
            range(len(wanted.assignments))
        ):
            raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0 without a gap")
        return len(wanted.assignments)
    if wanted.replication_factor not in (-1, 1):
        message = f"replication factor {wanted.replication_factor}: there is one broker, use 1 or -1"
        raise TopicError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return node.options.default_partitions if wanted.num_partitions == -1 else wanted.num_partitions
