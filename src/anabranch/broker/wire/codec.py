"""Bytes to messages and back: one function per message class and version, compiled when it is first asked for.

`decode` raises `WireError` and nothing else, whatever the bytes are. What comes out owns its memory, but for records,
which are views into the frame. Unknown tagged fields are skipped.

`encode` is for messages that we make ourselves, so a value that the version cannot hold (a null where null is not
allowed, a number out of range) is an `InternalError`. A field that the version does not have is left out, whatever it
holds: that is what lets one handler fill in one answer for all versions. Kafka calls such fields ignorable, and refuses
a few others; no answer of ours means something else without the field that an old version lacks.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from anabranch.broker.wire.decoder import compile_decoder
from anabranch.broker.wire.encoder import compile_encoder
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.schema import Message
from anabranch.core.errors import InternalError

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type, int], Callable[[memoryview, int], Any]] = {}
_encoders: dict[tuple[type, int], Callable[[Any], list[bytes | memoryview]]] = {}


def decode(cls: type[M], version: int, data: memoryview, position: int = 0) -> M:
    """Read a message; raises `WireError` when the bytes are none. What follows it is ignored, as Kafka does.

    librdkafka 2.16 asks for all topics (Metadata 9 and up) with the four-byte count of older versions: read as what it
    is in the new version, null topics and two flags, three bytes are left over.
    """
    decoder = _decoders.get((cls, version))
    if decoder is None:
        if version not in cls.WIRE.versions:
            raise WireError(f"{cls.__name__} has no version {version}; ask ApiVersions for the ones that exist")
        decoder = compile_decoder(cls, version, is_flexible=version in cls.WIRE.flexible)
        _decoders[cls, version] = decoder
    try:
        message: M = decoder(data, position)
    except (struct.error, IndexError) as cause:
        raise WireError(f"{cls.__name__} v{version}: the message ends too early") from cause
    except UnicodeDecodeError as cause:
        raise WireError(f"{cls.__name__} v{version}: a string is not UTF-8") from cause
    return message


def encode(message: Message, version: int) -> list[bytes | memoryview]:
    """Write a message as chunks to be sent in order; large record payloads are chunks of their own, uncopied."""
    cls = type(message)
    encoder = _encoders.get((cls, version))
    if encoder is None:
        if version not in cls.WIRE.versions:
            raise InternalError(f"{cls.__name__} has no version {version}; answer with one that exists")
        encoder = compile_encoder(cls, version, is_flexible=version in cls.WIRE.flexible)
        _encoders[cls, version] = encoder
    try:
        return encoder(message)
    except (struct.error, TypeError, AttributeError, ValueError) as cause:
        raise InternalError(f"{cls.__name__} v{version} cannot hold this: {cause}") from cause


def encode_bytes(message: Message, version: int) -> bytes:
    """Write a message as one piece, records copied; for tests and small clients."""
    return b"".join(encode(message, version))
