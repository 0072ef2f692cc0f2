"""Metadata: which brokers there are and who leads which partition; creates topics when that is allowed.

Version 0 asks for all topics with an empty list, later ones with null. From version 10 topics may be named by id.
Version 13 adds an error for the whole answer, which is never set here.
"""

from anabranch.broker.api.context import Context
from anabranch.broker.node import Node
from anabranch.broker.topics import Topic, TopicError
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from anabranch.broker.wire.schema import NO_ID


def handle(node: Node, request: MetadataRequest, context: Context) -> MetadataResponse:
    """Describe this broker and the topics that were asked for."""
    if request.topics is None or (context.version == 0 and not request.topics):
        topics = [_described(node, topic) for topic in node.topics]
    else:
        may_create = node.options.auto_create and request.allow_auto_topic_creation
        named = {(wanted.topic_id, wanted.name): wanted for wanted in request.topics}
        topics = [_find(node, wanted, context.version, may_create=may_create) for wanted in named.values()]
    host, port = node.advertised
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node.options.node_id, host=host, port=port)],
        cluster_id=node.catalog.cluster_id,
        controller_id=node.options.node_id,
        topics=topics,
    )


def _find(node: Node, wanted: MetadataRequestTopic, version: int, *, may_create: bool) -> MetadataResponseTopic:
    if wanted.topic_id != NO_ID:
        found = node.topics.with_id(wanted.topic_id)
        if found is None:
            unnamed = None if version >= 12 else ""
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=unnamed, topic_id=wanted.topic_id)
        return _described(node, found)
    name = wanted.name or ""
    topic = node.topics.get(name)
    if topic is not None:
        return _described(node, topic)
    try:
        if may_create:
            return _described(node, node.topics.create(name, node.options.default_partitions, {}, node.now_ms()))
        node.topics.check_name(name)
    except TopicError as error:
        deleting = error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if deleting else error.code
        return MetadataResponseTopic(error_code=code, name=name)
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)


def _described(node: Node, topic: Topic) -> MetadataResponseTopic:
    leader = node.options.node_id
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=leader,
                leader_epoch=node.leader_epoch,
                replica_nodes=[leader],
                isr_nodes=[leader],
            )
            for partition in topic.partitions
        ],
    )
