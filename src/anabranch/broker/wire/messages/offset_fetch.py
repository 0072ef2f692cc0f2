"""API 9, offset fetch: versions 0 to 9, flexible from 6.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopic:
    name: str = field(default="", metadata=wire("string"))
    partition_indexes: list[int] = field(default_factory=list, metadata=array("int32"))


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopics:
    name: str = field(default="", metadata=wire("string"))
    partition_indexes: list[int] = field(default_factory=list, metadata=array("int32"))


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    group_id: str = field(default="", metadata=wire("string"))
    member_id: str | None = field(default=None, metadata=wire("string", "9+", nullable="9+"))
    member_epoch: int = field(default=-1, metadata=wire("int32", "9+"))
    topics: list[OffsetFetchRequestTopics] | None = field(
        default_factory=list, metadata=array(OffsetFetchRequestTopics, nullable="0+")
    )


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequest:
    WIRE: ClassVar[MessageWire] = message(key=9, versions="0-9", flexible="6+")

    groups: list[OffsetFetchRequestGroup] = field(default_factory=list, metadata=array(OffsetFetchRequestGroup, "8+"))
    group_id: str = field(default="", metadata=wire("string", "0-7"))
    topics: list[OffsetFetchRequestTopic] | None = field(
        default_factory=list, metadata=array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    )
    require_stable: bool = field(default=False, metadata=wire("bool", "7+"))


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartition:
    partition_index: int = field(default=0, metadata=wire("int32"))
    committed_offset: int = field(default=0, metadata=wire("int64"))
    committed_leader_epoch: int = field(default=-1, metadata=wire("int32", "5-7"))
    metadata: str | None = field(default="", metadata=wire("string", nullable="0+"))
    error_code: int = field(default=0, metadata=wire("int16"))


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopic:
    name: str = field(default="", metadata=wire("string"))
    partitions: list[OffsetFetchResponsePartition] = field(
        default_factory=list, metadata=array(OffsetFetchResponsePartition)
    )


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartitions:
    partition_index: int = field(default=0, metadata=wire("int32"))
    committed_offset: int = field(default=0, metadata=wire("int64"))
    committed_leader_epoch: int = field(default=-1, metadata=wire("int32"))
    metadata: str | None = field(default="", metadata=wire("string", nullable="0+"))
    error_code: int = field(default=0, metadata=wire("int16"))


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopics:
    name: str = field(default="", metadata=wire("string"))
    partitions: list[OffsetFetchResponsePartitions] = field(
        default_factory=list, metadata=array(OffsetFetchResponsePartitions)
    )


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    group_id: str = field(default="", metadata=wire("string"))
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list, metadata=array(OffsetFetchResponseTopics))
    error_code: int = field(default=0, metadata=wire("int16"))


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponse:
    WIRE: ClassVar[MessageWire] = message(key=9, versions="0-9", flexible="6+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "3+"))
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list, metadata=array(OffsetFetchResponseGroup, "8+"))
    topics: list[OffsetFetchResponseTopic] = field(
        default_factory=list, metadata=array(OffsetFetchResponseTopic, "0-7")
    )
    error_code: int = field(default=0, metadata=wire("int16", "2-7"))
