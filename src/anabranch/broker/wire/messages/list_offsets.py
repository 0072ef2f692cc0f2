"""API 2, list offsets: versions 0 to 10, flexible from 6.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class ListOffsetsPartition:
    partition_index: int = field(default=0, metadata=wire("int32"))
    current_leader_epoch: int = field(default=-1, metadata=wire("int32", "4+"))
    timestamp: int = field(default=0, metadata=wire("int64"))
    max_num_offsets: int = field(default=1, metadata=wire("int32", "0"))


@dataclass(slots=True, kw_only=True)
class ListOffsetsTopic:
    name: str = field(default="", metadata=wire("string"))
    partitions: list[ListOffsetsPartition] = field(default_factory=list, metadata=array(ListOffsetsPartition))


@dataclass(slots=True, kw_only=True)
class ListOffsetsRequest:
    WIRE: ClassVar[MessageWire] = message(key=2, versions="0-10", flexible="6+")

    replica_id: int = field(default=0, metadata=wire("int32"))
    isolation_level: int = field(default=0, metadata=wire("int8", "2+"))
    topics: list[ListOffsetsTopic] = field(default_factory=list, metadata=array(ListOffsetsTopic))
    timeout_ms: int = field(default=0, metadata=wire("int32", "10+"))


@dataclass(slots=True, kw_only=True)
class ListOffsetsPartitionResponse:
    partition_index: int = field(default=0, metadata=wire("int32"))
    error_code: int = field(default=0, metadata=wire("int16"))
    old_style_offsets: list[int] = field(default_factory=list, metadata=array("int64", "0"))
    timestamp: int = field(default=-1, metadata=wire("int64", "1+"))
    offset: int = field(default=-1, metadata=wire("int64", "1+"))
    leader_epoch: int = field(default=-1, metadata=wire("int32", "4+"))


@dataclass(slots=True, kw_only=True)
class ListOffsetsTopicResponse:
    name: str = field(default="", metadata=wire("string"))
    partitions: list[ListOffsetsPartitionResponse] = field(
        default_factory=list, metadata=array(ListOffsetsPartitionResponse)
    )


@dataclass(slots=True, kw_only=True)
class ListOffsetsResponse:
    WIRE: ClassVar[MessageWire] = message(key=2, versions="0-10", flexible="6+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "2+"))
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list, metadata=array(ListOffsetsTopicResponse))
