"""API 21, delete records: versions 0 to 2, flexible from 2.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartition:
    partition_index: int = field(default=0, metadata=wire("int32"))
    offset: int = field(default=0, metadata=wire("int64"))


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopic:
    name: str = field(default="", metadata=wire("string"))
    partitions: list[DeleteRecordsPartition] = field(default_factory=list, metadata=array(DeleteRecordsPartition))


@dataclass(slots=True, kw_only=True)
class DeleteRecordsRequest:
    WIRE: ClassVar[MessageWire] = message(key=21, versions="0-2", flexible="2+")

    topics: list[DeleteRecordsTopic] = field(default_factory=list, metadata=array(DeleteRecordsTopic))
    timeout_ms: int = field(default=0, metadata=wire("int32"))


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartitionResult:
    partition_index: int = field(default=0, metadata=wire("int32"))
    low_watermark: int = field(default=0, metadata=wire("int64"))
    error_code: int = field(default=0, metadata=wire("int16"))


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopicResult:
    name: str = field(default="", metadata=wire("string"))
    partitions: list[DeleteRecordsPartitionResult] = field(
        default_factory=list, metadata=array(DeleteRecordsPartitionResult)
    )


@dataclass(slots=True, kw_only=True)
class DeleteRecordsResponse:
    WIRE: ClassVar[MessageWire] = message(key=21, versions="0-2", flexible="2+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32"))
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list, metadata=array(DeleteRecordsTopicResult))
