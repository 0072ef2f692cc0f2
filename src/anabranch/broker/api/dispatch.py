"""From a frame to its answer: read the header, decode, call the API's handler, encode. Knows no sockets.

A handler is `handle(node, request, context)`. It answers a response, None (no answer is due), or a coroutine when it
must wait. Bytes that make no sense raise WireError and the connection is cut, as Kafka does; the one exception is an
unknown version of ApiVersions, which is answered in version 0 so that newer clients can fall back.
"""

import struct
from collections.abc import Callable, Coroutine
from inspect import iscoroutine
from typing import Any, Final, NamedTuple

from anabranch.broker.api import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k32_describe_configs,
    k37_create_partitions,
)
from anabranch.broker.api.context import Context
from anabranch.broker.node import Node
from anabranch.broker.wire.apis import API, Api
from anabranch.broker.wire.codec import decode, encode
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.headers import read_request_header, response_header

PRODUCE: Final = 0
API_VERSIONS: Final = 18

HANDLERS: Final[dict[int, Callable[[Node, Any, Context], Any]]] = {
    0: k00_produce.handle,
    1: k01_fetch.handle,
    2: k02_list_offsets.handle,
    3: k03_metadata.handle,
    8: k08_offset_commit.handle,
    9: k09_offset_fetch.handle,
    10: k10_find_coordinator.handle,
    11: k11_join_group.handle,
    12: k12_heartbeat.handle,
    13: k13_leave_group.handle,
    14: k14_sync_group.handle,
    15: k15_describe_groups.handle,
    16: k16_list_groups.handle,
    18: k18_api_versions.handle,
    19: k19_create_topics.handle,
    20: k20_delete_topics.handle,
    21: k21_delete_records.handle,
    22: k22_init_producer_id.handle,
    23: k23_offset_for_leader_epoch.handle,
    32: k32_describe_configs.handle,
    37: k37_create_partitions.handle,
}

_LENGTH: Final = struct.Struct(">i")

Chunks = list[bytes | bytearray | memoryview]


class Waiting(NamedTuple):
    """An answer that comes later. `pipelined`: the connection may go on with the next request meanwhile."""

    answer: Coroutine[Any, Any, Chunks]
    pipelined: bool


def answer(node: Node, frame: memoryview, client_host: str) -> Chunks | Waiting | None:
    """Answer one request; None when the client expects nothing. The frame is not used after the call returns."""
    header = read_request_header(frame)
    api = API.get(header.api_key)
    if api is None:
        raise WireError(f"API key {header.api_key} is not served")
    version = header.api_version
    if not api.version_min <= version <= api.version_max:
        if api.key == API_VERSIONS:
            return _encoded(api, 0, header.correlation_id, k18_api_versions.unsupported())
        raise WireError(f"{api.name} version {version} is not served, {api.version_min} to {api.version_max} are")
    request = decode(api.request, version, frame, header.body_position)
    result = HANDLERS[api.key](node, request, Context(version, header.client_id or "", client_host))
    if result is None:
        return None
    if iscoroutine(result):
        return Waiting(_later(api, version, header.correlation_id, result), api.key == PRODUCE)
    return _encoded(api, version, header.correlation_id, result)


async def _later(api: Api, version: int, correlation_id: int, result: Coroutine[Any, Any, Any]) -> Chunks:
    return _encoded(api, version, correlation_id, await result)


def _encoded(api: Api, version: int, correlation_id: int, response: Any) -> Chunks:
    chunks: Chunks = [*encode(response, version)]
    head = response_header(api.key, version, correlation_id)
    chunks.insert(0, _LENGTH.pack(len(head) + sum(map(len, chunks))) + head)
    return chunks
