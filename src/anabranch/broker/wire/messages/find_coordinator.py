"""API 10, find coordinator: versions 0 to 5, flexible from 3.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class FindCoordinatorRequest:
    WIRE: ClassVar[MessageWire] = message(key=10, versions="0-5", flexible="3+")

    key: str = field(default="", metadata=wire("string", "0-3"))
    key_type: int = field(default=0, metadata=wire("int8", "1+"))
    coordinator_keys: list[str] = field(default_factory=list, metadata=array("string", "4+"))


@dataclass(slots=True, kw_only=True)
class Coordinator:
    key: str = field(default="", metadata=wire("string"))
    node_id: int = field(default=0, metadata=wire("int32"))
    host: str = field(default="", metadata=wire("string"))
    port: int = field(default=0, metadata=wire("int32"))
    error_code: int = field(default=0, metadata=wire("int16"))
    error_message: str | None = field(default="", metadata=wire("string", nullable="0+"))


@dataclass(slots=True, kw_only=True)
class FindCoordinatorResponse:
    WIRE: ClassVar[MessageWire] = message(key=10, versions="0-5", flexible="3+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "1+"))
    coordinators: list[Coordinator] = field(default_factory=list, metadata=array(Coordinator, "4+"))
    error_code: int = field(default=0, metadata=wire("int16", "0-3"))
    error_message: str | None = field(default="", metadata=wire("string", "1-3", nullable="1-3"))
    node_id: int = field(default=0, metadata=wire("int32", "0-3"))
    host: str = field(default="", metadata=wire("string", "0-3"))
    port: int = field(default=0, metadata=wire("int32", "0-3"))
