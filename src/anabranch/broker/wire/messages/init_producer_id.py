"""API 22, init producer id: versions 0 to 5, flexible from 2.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import MessageWire, message, wire


@dataclass(slots=True, kw_only=True)
class InitProducerIdRequest:
    WIRE: ClassVar[MessageWire] = message(key=22, versions="0-5", flexible="2+")

    transactional_id: str | None = field(default="", metadata=wire("string", nullable="0+"))
    transaction_timeout_ms: int = field(default=0, metadata=wire("int32"))
    producer_id: int = field(default=-1, metadata=wire("int64", "3+"))
    producer_epoch: int = field(default=-1, metadata=wire("int16", "3+"))


@dataclass(slots=True, kw_only=True)
class InitProducerIdResponse:
    WIRE: ClassVar[MessageWire] = message(key=22, versions="0-5", flexible="2+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32"))
    error_code: int = field(default=0, metadata=wire("int16"))
    producer_id: int = field(default=-1, metadata=wire("int64"))
    producer_epoch: int = field(default=0, metadata=wire("int16"))
