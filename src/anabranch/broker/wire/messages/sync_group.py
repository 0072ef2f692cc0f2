"""API 14, sync group: versions 0 to 5, flexible from 4.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class SyncGroupRequestAssignment:
    member_id: str = field(default="", metadata=wire("string"))
    assignment: bytes = field(default=b"", metadata=wire("bytes"))


@dataclass(slots=True, kw_only=True)
class SyncGroupRequest:
    WIRE: ClassVar[MessageWire] = message(key=14, versions="0-5", flexible="4+")

    group_id: str = field(default="", metadata=wire("string"))
    generation_id: int = field(default=0, metadata=wire("int32"))
    member_id: str = field(default="", metadata=wire("string"))
    group_instance_id: str | None = field(default=None, metadata=wire("string", "3+", nullable="3+"))
    protocol_type: str | None = field(default=None, metadata=wire("string", "5+", nullable="5+"))
    protocol_name: str | None = field(default=None, metadata=wire("string", "5+", nullable="5+"))
    assignments: list[SyncGroupRequestAssignment] = field(
        default_factory=list, metadata=array(SyncGroupRequestAssignment)
    )


@dataclass(slots=True, kw_only=True)
class SyncGroupResponse:
    WIRE: ClassVar[MessageWire] = message(key=14, versions="0-5", flexible="4+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "1+"))
    error_code: int = field(default=0, metadata=wire("int16"))
    protocol_type: str | None = field(default=None, metadata=wire("string", "5+", nullable="5+"))
    protocol_name: str | None = field(default=None, metadata=wire("string", "5+", nullable="5+"))
    assignment: bytes = field(default=b"", metadata=wire("bytes"))
