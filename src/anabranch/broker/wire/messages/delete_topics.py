"""API 20, delete topics: versions 0 to 6, flexible from 4.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import NO_ID, MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class DeleteTopicState:
    name: str | None = field(default=None, metadata=wire("string", nullable="0+"))
    topic_id: bytes = field(default=NO_ID, metadata=wire("uuid"))


@dataclass(slots=True, kw_only=True)
class DeleteTopicsRequest:
    WIRE: ClassVar[MessageWire] = message(key=20, versions="0-6", flexible="4+")

    topics: list[DeleteTopicState] = field(default_factory=list, metadata=array(DeleteTopicState, "6+"))
    topic_names: list[str] = field(default_factory=list, metadata=array("string", "0-5"))
    timeout_ms: int = field(default=0, metadata=wire("int32"))


@dataclass(slots=True, kw_only=True)
class DeletableTopicResult:
    name: str | None = field(default="", metadata=wire("string", nullable="6+"))
    topic_id: bytes = field(default=NO_ID, metadata=wire("uuid", "6+"))
    error_code: int = field(default=0, metadata=wire("int16"))
    error_message: str | None = field(default=None, metadata=wire("string", "5+", nullable="5+"))


@dataclass(slots=True, kw_only=True)
class DeleteTopicsResponse:
    WIRE: ClassVar[MessageWire] = message(key=20, versions="0-6", flexible="4+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "1+"))
    responses: list[DeletableTopicResult] = field(default_factory=list, metadata=array(DeletableTopicResult))
