"""API 15, describe groups: versions 0 to 5, flexible from 5.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class DescribeGroupsRequest:
    WIRE: ClassVar[MessageWire] = message(key=15, versions="0-5", flexible="5+")

    groups: list[str] = field(default_factory=list, metadata=array("string"))
    include_authorized_operations: bool = field(default=False, metadata=wire("bool", "3+"))


@dataclass(slots=True, kw_only=True)
class DescribedGroupMember:
    member_id: str = field(default="", metadata=wire("string"))
    group_instance_id: str | None = field(default=None, metadata=wire("string", "4+", nullable="4+"))
    client_id: str = field(default="", metadata=wire("string"))
    client_host: str = field(default="", metadata=wire("string"))
    member_metadata: bytes = field(default=b"", metadata=wire("bytes"))
    member_assignment: bytes = field(default=b"", metadata=wire("bytes"))


@dataclass(slots=True, kw_only=True)
class DescribedGroup:
    error_code: int = field(default=0, metadata=wire("int16"))
    group_id: str = field(default="", metadata=wire("string"))
    group_state: str = field(default="", metadata=wire("string"))
    protocol_type: str = field(default="", metadata=wire("string"))
    protocol_data: str = field(default="", metadata=wire("string"))
    members: list[DescribedGroupMember] = field(default_factory=list, metadata=array(DescribedGroupMember))
    authorized_operations: int = field(default=-2147483648, metadata=wire("int32", "3+"))


@dataclass(slots=True, kw_only=True)
class DescribeGroupsResponse:
    WIRE: ClassVar[MessageWire] = message(key=15, versions="0-5", flexible="5+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "1+"))
    groups: list[DescribedGroup] = field(default_factory=list, metadata=array(DescribedGroup))
