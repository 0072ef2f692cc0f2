"""Produce: append record batches, one per partition, and answer when they are as safe as `acks` asks.

- acks=all waits for the high watermark (under `--flush always` that is the sync), acks=1 for the write, acks=0 for
  nothing and gets no answer.
- A batch that was seen before (same producer, same sequence) is answered as success, at its first offset.
- Versions 0 to 2 are advertised because old librdkafka turns compression off without them; they carry old message
  sets and are answered UNSUPPORTED_VERSION, as Kafka 4 does.

Not supported: transactional batches, message formats 0 and 1.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from anabranch.broker.api.context import Context
from anabranch.broker.log.admission import Origin
from anabranch.broker.log.errors import LogError
from anabranch.broker.node import Node
from anabranch.broker.partition import Partition
from anabranch.broker.topics import OFFSETS_TOPIC
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_ACKS_ALL = -1
_Answer = tuple[PartitionProduceResponse, Partition | None, int]
"""What the client is told, and where it was appended: the partition and the position behind it."""
_Waits = list[tuple[PartitionProduceResponse, "asyncio.Future[ErrorCode]"]]


def handle(
    node: Node, request: ProduceRequest, context: Context
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse] | None:
    """Append everything at once; wait only for what has to be waited for."""
    refusal = _refusal(request, context)
    now_ms = node.now_ms()
    waits: _Waits = []
    response = ProduceResponse()
    for topic in request.topic_data:
        answers = TopicProduceResponse(name=topic.name)
        response.responses.append(answers)
        for data in topic.partition_data:
            answer, partition, end = _append(node, topic.name, data, now_ms) if refusal is None else refusal(data.index)
            answers.partition_responses.append(answer)
            if partition is not None and request.acks == _ACKS_ALL:
                future = partition.durable(end)
                if future is not None:
                    waits.append((answer, future))
    if request.acks == 0:
        refused = [answer for topic in response.responses for answer in topic.partition_responses if answer.error_code]
        if refused:
            # There is no answer to put the error into: closing is how Kafka makes such a producer look again.
            raise WireError(f"acks=0 and {refused[0].error_message}")
        return None
    return _wait(response, waits, request.timeout_ms) if waits else response


def _refusal(request: ProduceRequest, context: Context) -> Callable[[int], _Answer] | None:
    """Answer what every partition is told, if the request as a whole cannot be served."""
    if context.version < 3:
        code, message = ErrorCode.UNSUPPORTED_VERSION, "message formats 0 and 1 are not served"
    elif request.acks not in (-1, 0, 1):
        code, message = ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks} is none of 0, 1 and all"
    elif request.transactional_id is not None:
        code, message = ErrorCode.INVALID_REQUEST, "transactions are not served yet"
    else:
        return None
    return lambda index: _refused(index, code, message)


def _append(node: Node, topic: str, data: PartitionProduceData, now_ms: int) -> _Answer:
    partition = node.topics.partition(topic, data.index)
    if partition is None:
        return _refused(data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}/{data.index}")
    if topic == OFFSETS_TOPIC:
        return _refused(data.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{topic} is the broker's own")
    try:
        appended = partition.log.append(memoryview(data.records or b""), origin=Origin.CLIENT, now_ms=now_ms)
    except LogError as error:
        return _refused(data.index, error.code, str(error))
    if not appended.duplicate:
        node.appended(partition)
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.log_start,
    )
    return answer, partition, appended.last_offset + 1


def _refused(index: int, code: ErrorCode, message: str) -> _Answer:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message), None, -1


async def _wait(response: ProduceResponse, waits: _Waits, timeout_ms: int) -> ProduceResponse:
    await asyncio.wait([future for _, future in waits], timeout=max(timeout_ms, 1) / 1000)
    for partition, future in waits:
        code = future.result() if future.done() else ErrorCode.REQUEST_TIMED_OUT
        if code is not ErrorCode.NONE:
            partition.error_code = code
            partition.base_offset = -1
    return response
