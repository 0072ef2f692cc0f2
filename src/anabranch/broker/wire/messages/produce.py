"""API 0, produce: versions 0 to 12, flexible from 9.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, RecordsIn, array, message, wire


@dataclass(slots=True, kw_only=True)
class PartitionProduceData:
    index: int = field(default=0, metadata=wire("int32"))
    records: RecordsIn = field(default=None, metadata=wire("records", nullable="0+"))


@dataclass(slots=True, kw_only=True)
class TopicProduceData:
    name: str = field(default="", metadata=wire("string"))
    partition_data: list[PartitionProduceData] = field(default_factory=list, metadata=array(PartitionProduceData))


@dataclass(slots=True, kw_only=True)
class ProduceRequest:
    WIRE: ClassVar[MessageWire] = message(key=0, versions="0-12", flexible="9+")

    transactional_id: str | None = field(default=None, metadata=wire("string", "3+", nullable="3+"))
    acks: int = field(default=0, metadata=wire("int16"))
    timeout_ms: int = field(default=0, metadata=wire("int32"))
    topic_data: list[TopicProduceData] = field(default_factory=list, metadata=array(TopicProduceData))


@dataclass(slots=True, kw_only=True)
class BatchIndexAndErrorMessage:
    batch_index: int = field(default=0, metadata=wire("int32"))
    batch_index_error_message: str | None = field(default=None, metadata=wire("string", nullable="0+"))


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch:
    leader_id: int = field(default=-1, metadata=wire("int32"))
    leader_epoch: int = field(default=-1, metadata=wire("int32"))


@dataclass(slots=True, kw_only=True)
class PartitionProduceResponse:
    index: int = field(default=0, metadata=wire("int32"))
    error_code: int = field(default=0, metadata=wire("int16"))
    base_offset: int = field(default=0, metadata=wire("int64"))
    log_append_time_ms: int = field(default=-1, metadata=wire("int64", "2+"))
    log_start_offset: int = field(default=-1, metadata=wire("int64", "5+"))
    record_errors: list[BatchIndexAndErrorMessage] = field(
        default_factory=list, metadata=array(BatchIndexAndErrorMessage, "8+")
    )
    error_message: str | None = field(default=None, metadata=wire("string", "8+", nullable="8+"))
    current_leader: LeaderIdAndEpoch | None = field(default=None, metadata=wire(LeaderIdAndEpoch, "10+", tag=0))


@dataclass(slots=True, kw_only=True)
class TopicProduceResponse:
    name: str = field(default="", metadata=wire("string"))
    partition_responses: list[PartitionProduceResponse] = field(
        default_factory=list, metadata=array(PartitionProduceResponse)
    )


@dataclass(slots=True, kw_only=True)
class NodeEndpoint:
    node_id: int = field(default=0, metadata=wire("int32"))
    host: str = field(default="", metadata=wire("string"))
    port: int = field(default=0, metadata=wire("int32"))
    rack: str | None = field(default=None, metadata=wire("string", nullable="0+"))


@dataclass(slots=True, kw_only=True)
class ProduceResponse:
    WIRE: ClassVar[MessageWire] = message(key=0, versions="0-12", flexible="9+")

    responses: list[TopicProduceResponse] = field(default_factory=list, metadata=array(TopicProduceResponse))
    throttle_time_ms: int = field(default=0, metadata=wire("int32", "1+"))
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, metadata=array(NodeEndpoint, "10+", tag=0))
