"""ListOffsets: where a partition begins and ends, and the first record at or after a time.

Times below zero are questions: -1 the high watermark, -2 the log start, -3 the record with the largest timestamp
(KIP-734), -4 the local log start (KIP-405: the same here), -5 the end of what is tiered (nothing is).
Finding a record by time decompresses a batch, so it is done in a thread.

Not supported: version 0's list of segment starts; it is answered with the one offset that the question means.
"""

import asyncio
from typing import Final

from anabranch.broker.api.context import Context
from anabranch.broker.log.errors import LogError
from anabranch.broker.node import Node
from anabranch.broker.partition import Partition
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5


async def handle(node: Node, request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    """Answer every question."""
    topics = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[await _partition(node, topic.name, wanted, context) for wanted in topic.partitions],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


async def _partition(
    node: Node, topic: str, wanted: ListOffsetsPartition, context: Context
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    partition = node.topics.partition(topic, wanted.partition_index)
    if partition is None:
        response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return response
    response.error_code = node.check_leader_epoch(wanted.current_leader_epoch)
    if response.error_code:
        return response
    try:
        found = await _offset(partition, wanted.timestamp)
    except (LogError, WireError) as error:
        response.error_code = error.code if isinstance(error, LogError) else ErrorCode.CORRUPT_MESSAGE
        return response
    if found is not None:
        response.timestamp, response.offset = found
        response.leader_epoch = partition.log.leader_epoch
    if context.version == 0 and response.offset >= 0:
        response.old_style_offsets = [response.offset]
    return response


async def _offset(partition: Partition, timestamp: int) -> tuple[int, int] | None:
    log = partition.log
    if timestamp == LATEST:
        return -1, log.high_watermark
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start
    if timestamp == LATEST_TIERED:
        return None
    if timestamp == MAX_TIMESTAMP:
        return await asyncio.to_thread(log.max_timestamp)
    return await asyncio.to_thread(log.offset_for_timestamp, timestamp)
