"""API 3, metadata: versions 0 to 13, flexible from 9.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import NO_ID, MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class MetadataRequestTopic:
    topic_id: bytes = field(default=NO_ID, metadata=wire("uuid", "10+"))
    name: str | None = field(default="", metadata=wire("string", nullable="10+"))


@dataclass(slots=True, kw_only=True)
class MetadataRequest:
    WIRE: ClassVar[MessageWire] = message(key=3, versions="0-13", flexible="9+")

    topics: list[MetadataRequestTopic] | None = field(
        default_factory=list, metadata=array(MetadataRequestTopic, nullable="1+")
    )
    allow_auto_topic_creation: bool = field(default=True, metadata=wire("bool", "4+"))
    include_cluster_authorized_operations: bool = field(default=False, metadata=wire("bool", "8-10"))
    include_topic_authorized_operations: bool = field(default=False, metadata=wire("bool", "8+"))


@dataclass(slots=True, kw_only=True)
class MetadataResponseBroker:
    node_id: int = field(default=0, metadata=wire("int32"))
    host: str = field(default="", metadata=wire("string"))
    port: int = field(default=0, metadata=wire("int32"))
    rack: str | None = field(default=None, metadata=wire("string", "1+", nullable="1+"))


@dataclass(slots=True, kw_only=True)
class MetadataResponsePartition:
    error_code: int = field(default=0, metadata=wire("int16"))
    partition_index: int = field(default=0, metadata=wire("int32"))
    leader_id: int = field(default=0, metadata=wire("int32"))
    leader_epoch: int = field(default=-1, metadata=wire("int32", "7+"))
    replica_nodes: list[int] = field(default_factory=list, metadata=array("int32"))
    isr_nodes: list[int] = field(default_factory=list, metadata=array("int32"))
    offline_replicas: list[int] = field(default_factory=list, metadata=array("int32", "5+"))


@dataclass(slots=True, kw_only=True)
class MetadataResponseTopic:
    error_code: int = field(default=0, metadata=wire("int16"))
    name: str | None = field(default="", metadata=wire("string", nullable="12+"))
    topic_id: bytes = field(default=NO_ID, metadata=wire("uuid", "10+"))
    is_internal: bool = field(default=False, metadata=wire("bool", "1+"))
    partitions: list[MetadataResponsePartition] = field(default_factory=list, metadata=array(MetadataResponsePartition))
    topic_authorized_operations: int = field(default=-2147483648, metadata=wire("int32", "8+"))


@dataclass(slots=True, kw_only=True)
class MetadataResponse:
    WIRE: ClassVar[MessageWire] = message(key=3, versions="0-13", flexible="9+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "3+"))
    brokers: list[MetadataResponseBroker] = field(default_factory=list, metadata=array(MetadataResponseBroker))
    cluster_id: str | None = field(default=None, metadata=wire("string", "2+", nullable="2+"))
    controller_id: int = field(default=-1, metadata=wire("int32", "1+"))
    topics: list[MetadataResponseTopic] = field(default_factory=list, metadata=array(MetadataResponseTopic))
    error_code: int = field(default=0, metadata=wire("int16", "13+"))
    cluster_authorized_operations: int = field(default=-2147483648, metadata=wire("int32", "8-10"))
