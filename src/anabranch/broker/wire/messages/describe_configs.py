"""API 32, describe configs: versions 0 to 4, flexible from 4.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResource:
    resource_type: int = field(default=0, metadata=wire("int8"))
    resource_name: str = field(default="", metadata=wire("string"))
    configuration_keys: list[str] | None = field(default_factory=list, metadata=array("string", nullable="0+"))


@dataclass(slots=True, kw_only=True)
class DescribeConfigsRequest:
    WIRE: ClassVar[MessageWire] = message(key=32, versions="0-4", flexible="4+")

    resources: list[DescribeConfigsResource] = field(default_factory=list, metadata=array(DescribeConfigsResource))
    include_synonyms: bool = field(default=False, metadata=wire("bool", "1+"))
    include_documentation: bool = field(default=False, metadata=wire("bool", "3+"))


@dataclass(slots=True, kw_only=True)
class DescribeConfigsSynonym:
    name: str = field(default="", metadata=wire("string"))
    value: str | None = field(default="", metadata=wire("string", nullable="0+"))
    source: int = field(default=0, metadata=wire("int8"))


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResourceResult:
    name: str = field(default="", metadata=wire("string"))
    value: str | None = field(default="", metadata=wire("string", nullable="0+"))
    read_only: bool = field(default=False, metadata=wire("bool"))
    is_default: bool = field(default=False, metadata=wire("bool", "0"))
    config_source: int = field(default=-1, metadata=wire("int8", "1+"))
    is_sensitive: bool = field(default=False, metadata=wire("bool"))
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list, metadata=array(DescribeConfigsSynonym, "1+"))
    config_type: int = field(default=0, metadata=wire("int8", "3+"))
    documentation: str | None = field(default="", metadata=wire("string", "3+", nullable="3+"))


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResult:
    error_code: int = field(default=0, metadata=wire("int16"))
    error_message: str | None = field(default="", metadata=wire("string", nullable="0+"))
    resource_type: int = field(default=0, metadata=wire("int8"))
    resource_name: str = field(default="", metadata=wire("string"))
    configs: list[DescribeConfigsResourceResult] = field(
        default_factory=list, metadata=array(DescribeConfigsResourceResult)
    )


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResponse:
    WIRE: ClassVar[MessageWire] = message(key=32, versions="0-4", flexible="4+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32"))
    results: list[DescribeConfigsResult] = field(default_factory=list, metadata=array(DescribeConfigsResult))
