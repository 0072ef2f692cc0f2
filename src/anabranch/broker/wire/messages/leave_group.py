"""API 13, leave group: versions 0 to 5, flexible from 4.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class MemberIdentity:
    member_id: str = field(default="", metadata=wire("string"))
    group_instance_id: str | None = field(default=None, metadata=wire("string", nullable="0+"))
    reason: str | None = field(default=None, metadata=wire("string", "5+", nullable="5+"))


@dataclass(slots=True, kw_only=True)
class LeaveGroupRequest:
    WIRE: ClassVar[MessageWire] = message(key=13, versions="0-5", flexible="4+")

    group_id: str = field(default="", metadata=wire("string"))
    members: list[MemberIdentity] = field(default_factory=list, metadata=array(MemberIdentity, "3+"))
    member_id: str = field(default="", metadata=wire("string", "0-2"))


@dataclass(slots=True, kw_only=True)
class MemberResponse:
    member_id: str = field(default="", metadata=wire("string"))
    group_instance_id: str | None = field(default="", metadata=wire("string", nullable="0+"))
    error_code: int = field(default=0, metadata=wire("int16"))


@dataclass(slots=True, kw_only=True)
class LeaveGroupResponse:
    WIRE: ClassVar[MessageWire] = message(key=13, versions="0-5", flexible="4+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "1+"))
    error_code: int = field(default=0, metadata=wire("int16"))
    members: list[MemberResponse] = field(default_factory=list, metadata=array(MemberResponse, "3+"))
