"""Fetch: whole record batches from given offsets, as bytes; waits until there are enough of them or time is up.

- A fetch inside a batch gets the whole batch; clients skip what they did not ask for.
- The first partition with data answers at least one batch, however small the limits, so that a large batch never
  stops a consumer (KIP-74).
- Long polls wait on the partitions' high watermarks. Fetch sessions are not kept: session id 0 makes every client
  send full requests, which all of them can.
- From version 13 topics are named by id. Leader epochs are checked: a consumer from before a restart refreshes.

Not supported: versions 0 to 3 (old message sets: UNSUPPORTED_VERSION), fetching as a replica.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from anabranch.broker.api.context import Context
from anabranch.broker.log.errors import LogError
from anabranch.broker.node import Node
from anabranch.broker.partition import Partition
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

_Wanted = tuple[FetchPartition, Partition | None]
_Topics = list[tuple[FetchableTopicResponse, list[_Wanted], ErrorCode]]


def handle(node: Node, request: FetchRequest, context: Context) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Answer at once if there is enough, else wait."""
    topics = _topics(node, request, context)
    response, due = _read(node, request, context, topics)
    if due or request.max_wait_ms <= 0 or not topics:
        return response
    return _wait(node, request, context)


def _topics(node: Node, request: FetchRequest, context: Context) -> _Topics:
    topics: _Topics = []
    for wanted in request.topics:
        by_id = context.version >= 13
        topic = node.topics.with_id(wanted.topic_id) if by_id else node.topics.get(wanted.topic)
        missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions: list[_Wanted] = [
            (part, topic.partitions[part.partition] if topic and 0 <= part.partition < len(topic.partitions) else None)
            for part in wanted.partitions
        ]
        code = missing if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics.append((FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id), partitions, code))
    return topics


def _read(node: Node, request: FetchRequest, context: Context, topics: _Topics) -> tuple[FetchResponse, bool]:
    """Answer the response as it would be now, and whether it should go out: there is enough, or something is wrong."""
    left = min(max(request.max_bytes, 0), node.answer_bytes_max())
    size, urgent = 0, False
    response = FetchResponse()
    for template, wanted, missing in topics:
        topic = FetchableTopicResponse(topic=template.topic, topic_id=template.topic_id)
        response.responses.append(topic)
        for part, partition in wanted:
            if context.version < 4:
                data = _refused(part, ErrorCode.UNSUPPORTED_VERSION)
            elif partition is None:
                data = _refused(part, missing)
            else:
                data = _read_partition(
                    node, part, partition, max(0, min(left - size, part.partition_max_bytes)), first=size == 0
                )
            size += len(data.records) if isinstance(data.records, bytes | memoryview) else 0
            urgent = urgent or data.error_code != 0
            topic.partitions.append(data)
    # Whole batches stop short of what may be answered: past half of it, waiting for `min_bytes` would be for nothing.
    return response, urgent or size >= min(request.min_bytes, left // 2)


def _read_partition(
    node: Node, part: FetchPartition, partition: Partition, bytes_max: int, *, first: bool
) -> PartitionData:
    log = partition.log
    code = node.check_leader_epoch(part.current_leader_epoch)
    records: bytes | memoryview = b""
    if code is ErrorCode.NONE and (bytes_max > 0 or first):
        try:
            records = log.read(part.fetch_offset, bytes_max, limit=log.high_watermark, at_least_one=first)
        except LogError as error:
            code = error.code
    if code is not ErrorCode.NONE:
        return _refused(part, code, log.high_watermark, log.log_start)
    return PartitionData(
        partition_index=part.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.high_watermark,
        log_start_offset=log.log_start,
        records=records,
    )


def _refused(part: FetchPartition, code: ErrorCode, high_watermark: int = -1, log_start: int = -1) -> PartitionData:
    return PartitionData(
        partition_index=part.partition,
        error_code=code,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        records=b"",
    )


async def _wait(node: Node, request: FetchRequest, context: Context) -> FetchResponse:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    while True:
        # Looked up anew each time: a topic may be deleted, or made again, while we wait.
        topics = _topics(node, request, context)
        partitions = [partition for _, wanted, _ in topics for _, partition in wanted if partition is not None]
        moved: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(deadline, _end, moved)
        for partition in partitions:
            partition.watch(moved)
        try:
            await moved
        finally:
            timer.cancel()
            for partition in partitions:
                partition.unwatch(moved)
        response, due = _read(node, request, context, _topics(node, request, context))
        if due or loop.time() >= deadline:
            return response


def _end(moved: asyncio.Future[None]) -> None:
    if not moved.done():
        moved.set_result(None)
