"""API 8, offset commit: versions 0 to 9, flexible from 8.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestPartition:
    partition_index: int = field(default=0, metadata=wire("int32"))
    committed_offset: int = field(default=0, metadata=wire("int64"))
    commit_timestamp: int = field(default=-1, metadata=wire("int64", "1"))
    committed_leader_epoch: int = field(default=-1, metadata=wire("int32", "6+"))
    committed_metadata: str | None = field(default="", metadata=wire("string", nullable="0+"))


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    name: str = field(default="", metadata=wire("string"))
    partitions: list[OffsetCommitRequestPartition] = field(
        default_factory=list, metadata=array(OffsetCommitRequestPartition)
    )


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequest:
    WIRE: ClassVar[MessageWire] = message(key=8, versions="0-9", flexible="8+")

    group_id: str = field(default="", metadata=wire("string"))
    generation_id_or_member_epoch: int = field(default=-1, metadata=wire("int32", "1+"))
    member_id: str = field(default="", metadata=wire("string", "1+"))
    group_instance_id: str | None = field(default=None, metadata=wire("string", "7+", nullable="7+"))
    retention_time_ms: int = field(default=-1, metadata=wire("int64", "2-4"))
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list, metadata=array(OffsetCommitRequestTopic))


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponsePartition:
    partition_index: int = field(default=0, metadata=wire("int32"))
    error_code: int = field(default=0, metadata=wire("int16"))


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    name: str = field(default="", metadata=wire("string"))
    partitions: list[OffsetCommitResponsePartition] = field(
        default_factory=list, metadata=array(OffsetCommitResponsePartition)
    )


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponse:
    WIRE: ClassVar[MessageWire] = message(key=8, versions="0-9", flexible="8+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "3+"))
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list, metadata=array(OffsetCommitResponseTopic))
