"""API 18, api versions: versions 0 to 4, flexible from 3.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, array, message, wire


@dataclass(slots=True, kw_only=True)
class ApiVersionsRequest:
    WIRE: ClassVar[MessageWire] = message(key=18, versions="0-4", flexible="3+")

    client_software_name: str = field(default="", metadata=wire("string", "3+"))
    client_software_version: str = field(default="", metadata=wire("string", "3+"))


@dataclass(slots=True, kw_only=True)
class ApiVersion:
    api_key: int = field(default=0, metadata=wire("int16"))
    min_version: int = field(default=0, metadata=wire("int16"))
    max_version: int = field(default=0, metadata=wire("int16"))


@dataclass(slots=True, kw_only=True)
class SupportedFeatureKey:
    name: str = field(default="", metadata=wire("string"))
    min_version: int = field(default=0, metadata=wire("int16"))
    max_version: int = field(default=0, metadata=wire("int16"))


@dataclass(slots=True, kw_only=True)
class FinalizedFeatureKey:
    name: str = field(default="", metadata=wire("string"))
    max_version_level: int = field(default=0, metadata=wire("int16"))
    min_version_level: int = field(default=0, metadata=wire("int16"))


@dataclass(slots=True, kw_only=True)
class ApiVersionsResponse:
    WIRE: ClassVar[MessageWire] = message(key=18, versions="0-4", flexible="3+")

    error_code: int = field(default=0, metadata=wire("int16"))
    api_keys: list[ApiVersion] = field(default_factory=list, metadata=array(ApiVersion))
    throttle_time_ms: int = field(default=0, metadata=wire("int32", "1+"))
    supported_features: list[SupportedFeatureKey] = field(
        default_factory=list, metadata=array(SupportedFeatureKey, "3+", tag=0)
    )
    finalized_features_epoch: int = field(default=-1, metadata=wire("int64", "3+", tag=1))
    finalized_features: list[FinalizedFeatureKey] = field(
        default_factory=list, metadata=array(FinalizedFeatureKey, "3+", tag=2)
    )
    zk_migration_ready: bool = field(default=False, metadata=wire("bool", "3+", tag=3))
