"""The table of APIs and versions that the broker speaks, and so advertises.

All ranges start at 0 and have no gaps, because clients differ in how they pick: librdkafka before 2.11.1 looks for
exact versions (without Produce 0-2 it switches compression off, without FindCoordinator 0 it drops lz4). That a version
is in the table means that its bytes are understood, not that it is served: Produce below 3 and Fetch below 4 carry
formats of records that no current client writes, and are answered with UNSUPPORTED_VERSION per partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from anabranch.broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.broker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from anabranch.broker.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from anabranch.broker.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from anabranch.broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from anabranch.broker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from anabranch.broker.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from anabranch.broker.wire.messages.fetch import FetchRequest, FetchResponse
from anabranch.broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from anabranch.broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from anabranch.broker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from anabranch.broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from anabranch.broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from anabranch.broker.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from anabranch.broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from anabranch.broker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from anabranch.broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from anabranch.broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from anabranch.broker.wire.messages.produce import ProduceRequest, ProduceResponse
from anabranch.broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from anabranch.broker.wire.schema import Message

API_VERSIONS_KEY: Final = 18


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its messages, the versions that we speak, and from which one they are flexible (KIP-482)."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]
    version_min: int
    version_max: int
    flexible_from: int


def _api(request: type[Message], response: type[Message]) -> Api:
    spec = request.WIRE
    name = request.__name__.removesuffix("Request")
    return Api(spec.key, name, request, response, spec.versions.first, spec.versions.last, spec.flexible.first)


_APIS: Final = (
    _api(ProduceRequest, ProduceResponse),
    _api(FetchRequest, FetchResponse),
    _api(ListOffsetsRequest, ListOffsetsResponse),
    _api(MetadataRequest, MetadataResponse),
    _api(OffsetCommitRequest, OffsetCommitResponse),
    _api(OffsetFetchRequest, OffsetFetchResponse),
    _api(FindCoordinatorRequest, FindCoordinatorResponse),
    _api(JoinGroupRequest, JoinGroupResponse),
    _api(HeartbeatRequest, HeartbeatResponse),
    _api(LeaveGroupRequest, LeaveGroupResponse),
    _api(SyncGroupRequest, SyncGroupResponse),
    _api(DescribeGroupsRequest, DescribeGroupsResponse),
    _api(ListGroupsRequest, ListGroupsResponse),
    _api(ApiVersionsRequest, ApiVersionsResponse),
    _api(CreateTopicsRequest, CreateTopicsResponse),
    _api(DeleteTopicsRequest, DeleteTopicsResponse),
    _api(DeleteRecordsRequest, DeleteRecordsResponse),
    _api(InitProducerIdRequest, InitProducerIdResponse),
    _api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    _api(DescribeConfigsRequest, DescribeConfigsResponse),
    _api(CreatePartitionsRequest, CreatePartitionsResponse),
)

API: Final[Mapping[int, Api]] = MappingProxyType({api.key: api for api in _APIS})
"""What we speak, by API key."""
