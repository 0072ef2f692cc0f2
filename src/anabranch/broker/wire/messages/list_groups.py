"""API 16, list groups: versions 0 to 5, flexible from 3.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class ListGroupsRequest:
    WIRE: ClassVar[MessageWire] = message(key=16, versions="0-5", flexible="3+")

    states_filter: list[str] = field(default_factory=list, metadata=array("string", "4+"))
    types_filter: list[str] = field(default_factory=list, metadata=array("string", "5+"))


@dataclass(slots=True, kw_only=True)
class ListedGroup:
    group_id: str = field(default="", metadata=wire("string"))
    protocol_type: str = field(default="", metadata=wire("string"))
    group_state: str = field(default="", metadata=wire("string", "4+"))
    group_type: str = field(default="", metadata=wire("string", "5+"))


@dataclass(slots=True, kw_only=True)
class ListGroupsResponse:
    WIRE: ClassVar[MessageWire] = message(key=16, versions="0-5", flexible="3+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "1+"))
    error_code: int = field(default=0, metadata=wire("int16"))
    groups: list[ListedGroup] = field(default_factory=list, metadata=array(ListedGroup))
