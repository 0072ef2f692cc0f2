"""OffsetForLeaderEpoch: where the records of a leader epoch end, so that consumers notice a log that was cut."""

from anabranch.broker.api.context import Context
from anabranch.broker.node import Node
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(node: Node, request: OffsetForLeaderEpochRequest, context: Context) -> OffsetForLeaderEpochResponse:
    """Answer from each partition's list of epochs."""
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic, partitions=[_end(node, topic.topic, wanted) for wanted in topic.partitions]
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _end(node: Node, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = node.topics.partition(topic, wanted.partition)
    if partition is None:
        return EpochEndOffset(partition=wanted.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    code = node.check_leader_epoch(wanted.current_leader_epoch)
    if code is not ErrorCode.NONE:
        return EpochEndOffset(partition=wanted.partition, error_code=code)
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
