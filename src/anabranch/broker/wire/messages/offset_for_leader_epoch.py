"""API 23, offset for leader epoch: versions 0 to 4, flexible from 4.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderPartition:
    partition: int = field(default=0, metadata=wire("int32"))
    current_leader_epoch: int = field(default=-1, metadata=wire("int32", "2+"))
    leader_epoch: int = field(default=0, metadata=wire("int32"))


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopic:
    topic: str = field(default="", metadata=wire("string"))
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list, metadata=array(OffsetForLeaderPartition))


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochRequest:
    WIRE: ClassVar[MessageWire] = message(key=23, versions="0-4", flexible="4+")

    replica_id: int = field(default=-2, metadata=wire("int32", "3+"))
    topics: list[OffsetForLeaderTopic] = field(default_factory=list, metadata=array(OffsetForLeaderTopic))


@dataclass(slots=True, kw_only=True)
class EpochEndOffset:
    error_code: int = field(default=0, metadata=wire("int16"))
    partition: int = field(default=0, metadata=wire("int32"))
    leader_epoch: int = field(default=-1, metadata=wire("int32", "1+"))
    end_offset: int = field(default=-1, metadata=wire("int64"))


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    topic: str = field(default="", metadata=wire("string"))
    partitions: list[EpochEndOffset] = field(default_factory=list, metadata=array(EpochEndOffset))


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    WIRE: ClassVar[MessageWire] = message(key=23, versions="0-4", flexible="4+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "2+"))
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list, metadata=array(OffsetForLeaderTopicResult))
