"""API 11, join group: versions 0 to 9, flexible from 6.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class JoinGroupRequestProtocol:
    name: str = field(default="", metadata=wire("string"))
    metadata: bytes = field(default=b"", metadata=wire("bytes"))


@dataclass(slots=True, kw_only=True)
class JoinGroupRequest:
    WIRE: ClassVar[MessageWire] = message(key=11, versions="0-9", flexible="6+")

    group_id: str = field(default="", metadata=wire("string"))
    session_timeout_ms: int = field(default=0, metadata=wire("int32"))
    rebalance_timeout_ms: int = field(default=-1, metadata=wire("int32", "1+"))
    member_id: str = field(default="", metadata=wire("string"))
    group_instance_id: str | None = field(default=None, metadata=wire("string", "5+", nullable="5+"))
    protocol_type: str = field(default="", metadata=wire("string"))
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list, metadata=array(JoinGroupRequestProtocol))
    reason: str | None = field(default=None, metadata=wire("string", "8+", nullable="8+"))


@dataclass(slots=True, kw_only=True)
class JoinGroupResponseMember:
    member_id: str = field(default="", metadata=wire("string"))
    group_instance_id: str | None = field(default=None, metadata=wire("string", "5+", nullable="5+"))
    metadata: bytes = field(default=b"", metadata=wire("bytes"))


@dataclass(slots=True, kw_only=True)
class JoinGroupResponse:
    WIRE: ClassVar[MessageWire] = message(key=11, versions="0-9", flexible="6+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "2+"))
    error_code: int = field(default=0, metadata=wire("int16"))
    generation_id: int = field(default=-1, metadata=wire("int32"))
    protocol_type: str | None = field(default=None, metadata=wire("string", "7+", nullable="7+"))
    protocol_name: str | None = field(default="", metadata=wire("string", nullable="7+"))
    leader: str = field(default="", metadata=wire("string"))
    skip_assignment: bool = field(default=False, metadata=wire("bool", "9+"))
    member_id: str = field(default="", metadata=wire("string"))
    members: list[JoinGroupResponseMember] = field(default_factory=list, metadata=array(JoinGroupResponseMember))
