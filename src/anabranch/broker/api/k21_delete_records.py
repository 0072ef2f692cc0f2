"""DeleteRecords: raise a partition's log start; it is stored before it is answered.

Offset -1 means the high watermark.
"""

from anabranch.broker.api.context import Context
from anabranch.broker.log.errors import LogError
from anabranch.broker.node import Node
from anabranch.broker.partition import Partition
from anabranch.broker.topics import TopicError
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(node: Node, request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    """Raise every log start that was asked for, then store them all at once."""
    raised: list[Partition] = []
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name, partitions=[_delete(node, topic.name, wanted, raised) for wanted in topic.partitions]
        )
        for topic in request.topics
    ]
    try:
        node.topics.store_log_starts(raised)
    except TopicError as error:
        for result in (result for topic in topics for result in topic.partitions if not result.error_code):
            result.error_code, result.low_watermark = error.code, -1
    return DeleteRecordsResponse(topics=topics)


def _delete(
    node: Node, topic: str, wanted: DeleteRecordsPartition, raised: list[Partition]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
    found = node.topics.get(topic)
    partition = node.topics.partition(topic, wanted.partition_index)
    if found is None or partition is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result
    if found.internal:
        result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    before = partition.log.high_watermark if wanted.offset == -1 else wanted.offset
    if not 0 <= before <= partition.log.high_watermark:
        result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return result
    try:
        result.low_watermark = partition.log.delete_records(before)
        raised.append(partition)
    except LogError as error:
        result.error_code = error.code
    return result
