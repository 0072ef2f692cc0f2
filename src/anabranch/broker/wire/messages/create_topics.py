"""API 19, create topics: versions 0 to 7, flexible from 5.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import NO_ID, MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class CreatableReplicaAssignment:
    partition_index: int = field(default=0, metadata=wire("int32"))
    broker_ids: list[int] = field(default_factory=list, metadata=array("int32"))


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfig:
    name: str = field(default="", metadata=wire("string"))
    value: str | None = field(default="", metadata=wire("string", nullable="0+"))


@dataclass(slots=True, kw_only=True)
class CreatableTopic:
    name: str = field(default="", metadata=wire("string"))
    num_partitions: int = field(default=0, metadata=wire("int32"))
    replication_factor: int = field(default=0, metadata=wire("int16"))
    assignments: list[CreatableReplicaAssignment] = field(
        default_factory=list, metadata=array(CreatableReplicaAssignment)
    )
    configs: list[CreatableTopicConfig] = field(default_factory=list, metadata=array(CreatableTopicConfig))


@dataclass(slots=True, kw_only=True)
class CreateTopicsRequest:
    WIRE: ClassVar[MessageWire] = message(key=19, versions="0-7", flexible="5+")

    topics: list[CreatableTopic] = field(default_factory=list, metadata=array(CreatableTopic))
    timeout_ms: int = field(default=60000, metadata=wire("int32"))
    validate_only: bool = field(default=False, metadata=wire("bool", "1+"))


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfigs:
    name: str = field(default="", metadata=wire("string"))
    value: str | None = field(default="", metadata=wire("string", nullable="0+"))
    read_only: bool = field(default=False, metadata=wire("bool"))
    config_source: int = field(default=-1, metadata=wire("int8"))
    is_sensitive: bool = field(default=False, metadata=wire("bool"))


@dataclass(slots=True, kw_only=True)
class CreatableTopicResult:
    name: str = field(default="", metadata=wire("string"))
    topic_id: bytes = field(default=NO_ID, metadata=wire("uuid", "7+"))
    error_code: int = field(default=0, metadata=wire("int16"))
    error_message: str | None = field(default="", metadata=wire("string", "1+", nullable="1+"))
    topic_config_error_code: int = field(default=0, metadata=wire("int16", "5+", tag=0))
    num_partitions: int = field(default=-1, metadata=wire("int32", "5+"))
    replication_factor: int = field(default=-1, metadata=wire("int16", "5+"))
    configs: list[CreatableTopicConfigs] | None = field(
        default_factory=list, metadata=array(CreatableTopicConfigs, "5+", nullable="5+")
    )


@dataclass(slots=True, kw_only=True)
class CreateTopicsResponse:
    WIRE: ClassVar[MessageWire] = message(key=19, versions="0-7", flexible="5+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "2+"))
    topics: list[CreatableTopicResult] = field(default_factory=list, metadata=array(CreatableTopicResult))
