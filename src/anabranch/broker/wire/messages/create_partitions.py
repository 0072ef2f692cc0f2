"""API 37, create partitions: versions 0 to 3, flexible from 2.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class CreatePartitionsAssignment:
    broker_ids: list[int] = field(default_factory=list, metadata=array("int32"))


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopic:
    name: str = field(default="", metadata=wire("string"))
    count: int = field(default=0, metadata=wire("int32"))
    assignments: list[CreatePartitionsAssignment] | None = field(
        default_factory=list, metadata=array(CreatePartitionsAssignment, nullable="0+")
    )


@dataclass(slots=True, kw_only=True)
class CreatePartitionsRequest:
    WIRE: ClassVar[MessageWire] = message(key=37, versions="0-3", flexible="2+")

    topics: list[CreatePartitionsTopic] = field(default_factory=list, metadata=array(CreatePartitionsTopic))
    timeout_ms: int = field(default=0, metadata=wire("int32"))
    validate_only: bool = field(default=False, metadata=wire("bool"))


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopicResult:
    name: str = field(default="", metadata=wire("string"))
    error_code: int = field(default=0, metadata=wire("int16"))
    error_message: str | None = field(default=None, metadata=wire("string", nullable="0+"))


@dataclass(slots=True, kw_only=True)
class CreatePartitionsResponse:
    WIRE: ClassVar[MessageWire] = message(key=37, versions="0-3", flexible="2+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32"))
    results: list[CreatePartitionsTopicResult] = field(
        default_factory=list, metadata=array(CreatePartitionsTopicResult)
    )
