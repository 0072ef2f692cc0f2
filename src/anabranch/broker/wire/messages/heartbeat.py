"""API 12, heartbeat: versions 0 to 4, flexible from 4.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, message, wire


@dataclass(slots=True, kw_only=True)
class HeartbeatRequest:
    WIRE: ClassVar[MessageWire] = message(key=12, versions="0-4", flexible="4+")

    group_id: str = field(default="", metadata=wire("string"))
    generation_id: int = field(default=0, metadata=wire("int32"))
    member_id: str = field(default="", metadata=wire("string"))
    group_instance_id: str | None = field(default=None, metadata=wire("string", "3+", nullable="3+"))


@dataclass(slots=True, kw_only=True)
class HeartbeatResponse:
    WIRE: ClassVar[MessageWire] = message(key=12, versions="0-4", flexible="4+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "1+"))
    error_code: int = field(default=0, metadata=wire("int16"))
