"""Compress and decompress the records of a batch: gzip, snappy, lz4 and zstd, never beyond a bound.

A few kilobytes can claim to hold gigabytes, so output goes into buffers of our own size: a small one first, larger
ones up to the bound while the codec fails. A codec does not say portably whether it failed for want of room or for bad
bytes; trying again with more room costs malformed input a few allocations and nothing else.

Snappy comes in two shapes: the framing of the Java library (a magic, then blocks with their length) that Java clients
and librdkafka send, and one raw block, which some clients send. The magic tells them apart.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

import cramjam

from anabranch.broker.wire.errors import WireError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names by their number in the lowest three bits of a batch's attributes; zstd since KIP-110."""

UNCOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""A 1 MiB batch (the default limit) of text compresses 3 to 20 times, of zeros up to 1,000 times or more."""

_FIRST_BUFFER_BYTES = 64 * 1024
_GROWTH = 8
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_LENGTH = Struct(">i")


def codec_number(name: str) -> int:
    """Give the number of a codec by its name; raises WireError for a name that Kafka does not know."""
    if name not in CODECS:
        raise WireError(f"no compression is called {name!r}: use one of {', '.join(CODECS)}")
    return CODECS.index(name)


def compress(codec: int, data: bytes | bytearray) -> bytes:
    """Compress `data` with the codec of that number."""
    if codec == 0:
        return bytes(data)
    if codec == 1:
        return bytes(cramjam.gzip.compress(data))
    if codec == 2:
        return _compress_snappy(data)
    if codec == 3:
        return bytes(cramjam.lz4.compress(data))
    if codec == 4:
        return bytes(cramjam.zstd.compress(data))
    raise WireError(f"compression number {codec} is not one of 0 to {len(CODECS) - 1}")


def decompress(codec: int, data: memoryview, bytes_max: int = UNCOMPRESSED_BYTES_MAX) -> memoryview:
    """Decompress `data`; raises WireError when it is malformed or would be larger than `bytes_max`."""
    if codec == 0:
        return data
    if codec == 2:
        return _decompress_snappy(data, bytes_max)
    into: Callable[[Any, Any], int] | None = {
        1: cramjam.gzip.decompress_into,
        3: cramjam.lz4.decompress_into,
        4: cramjam.zstd.decompress_into,
    }.get(codec)
    if into is None:
        raise WireError(f"compression number {codec} is not one of 0 to {len(CODECS) - 1}")
    return _into_growing_buffer(into, data, bytes_max)


def _into_growing_buffer(into: Callable[[Any, Any], int], data: memoryview, bytes_max: int) -> memoryview:
    size = min(max(_FIRST_BUFFER_BYTES, 4 * len(data)), bytes_max)
    while True:
        buffer = bytearray(size)
        try:
            return memoryview(buffer)[: into(data, buffer)]
        except (cramjam.DecompressionError, ValueError) as error:
            if size >= bytes_max:
                raise WireError(f"records do not decompress to at most {bytes_max} bytes: {error}") from error
        size = min(size * _GROWTH, bytes_max)


def _compress_snappy(data: bytes | bytearray) -> bytes:
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(data[start : start + _XERIAL_BLOCK_BYTES])))
        pieces += [_LENGTH.pack(len(block)), block]
    return b"".join(pieces)


def _decompress_snappy(data: memoryview, bytes_max: int) -> memoryview:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_block(data, bytes_max)
    pieces = []
    position = len(_XERIAL_HEADER)
    room = bytes_max
    while position < len(data):
        if position + 4 > len(data):
            raise WireError("snappy records end within a block's length")
        (length,) = _LENGTH.unpack_from(data, position)
        position += 4
        if not 0 < length <= len(data) - position:
            raise WireError(f"a snappy block of {length} bytes does not fit into {len(data) - position}")
        block = _decompress_block(data[position : position + length], room)
        room -= len(block)
        position += length
        pieces.append(block)
    return memoryview(b"".join(pieces))


def _decompress_block(data: memoryview, bytes_max: int) -> memoryview:
    try:
        size: int = cramjam.snappy.decompress_raw_len(data)
        if size > bytes_max:
            raise WireError(f"snappy records claim {size} bytes, at most {bytes_max} are allowed")
        buffer = bytearray(size)
        return memoryview(buffer)[: cramjam.snappy.decompress_raw_into(data, buffer)]
    except (cramjam.DecompressionError, ValueError) as error:
        raise WireError(f"snappy records are malformed: {error}") from error
