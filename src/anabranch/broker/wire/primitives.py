"""What compiled codecs call instead of spelling it out: long varints, unknown tags, records, refusals."""

from collections.abc import Sequence
from typing import Final, NoReturn

from anabranch.broker.wire.errors import WireError

CHUNK_BYTES_MIN: Final = 4096
"""A record payload above this is handed on as it is; below, a copy costs less than one more buffer to send."""
ENTRIES_MAX: Final = 100_000
"""Array entries in one message, all arrays together. An entry of two bytes becomes objects of 120 bytes, one of thirty
bytes of 300, so this keeps what a frame of any size can make us build near 30 MB; records are views and cost nothing.
Ten thousand partitions stay far below it."""
UVARINT_BYTES_MAX: Final = 5

ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))
"""The varints of one byte."""


def uvarint(value: int) -> bytes:
    """Encode an unsigned number, seven bits a byte, lowest first."""
    if value < 0x80:
        return ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned number of at most 32 bits, and give it with the position behind it."""
    value = 0
    for index in range(UVARINT_BYTES_MAX):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, position + index + 1
    raise WireError(f"a varint at byte {position} has more than 32 bits")


def skip_tags(data: memoryview, position: int, count: int) -> int:
    """Step over tagged fields that nobody here knows, and give the position behind them."""
    for _ in range(count):
        _, position = read_uvarint(data, position)
        length, position = read_uvarint(data, position)
        position += length
        if position > len(data):
            raise WireError(f"a tagged field ends {position - len(data)} bytes behind the message")
    return position


def refuse_length(field: str, length: int, left: int) -> NoReturn:
    """Refuse a length that is negative, null where null is not allowed, or longer than what is left."""
    raise WireError(f"{field}: a length of {length} does not fit: {left} bytes are left")


def refuse_count(field: str, count: int, left: int) -> NoReturn:
    """Refuse an array count that the rest of the message cannot hold, or that is above `ENTRIES_MAX` in all."""
    raise WireError(f"{field}: an array of {count} entries does not fit: {left} bytes are left")


def refuse_tag(field: str, length: int) -> NoReturn:
    """Refuse a tagged field whose content is shorter or longer than it says."""
    raise WireError(f"{field}: its content does not have the {length} bytes that its tag announces")


def records_bytes(records: bytes | memoryview | Sequence[bytes | memoryview]) -> int:
    """Give the length of records, which may be in several parts."""
    if isinstance(records, bytes | memoryview | bytearray):
        return len(records)
    return sum(map(len, records))


def put_records(
    chunks: list[bytes | memoryview],
    parts: list[bytes | memoryview],
    records: bytes | memoryview | Sequence[bytes | memoryview],
) -> None:
    """Add records to a message under way: large ones as chunks of their own, small ones among the other parts."""
    pieces = (records,) if isinstance(records, bytes | memoryview | bytearray) else records
    for piece in pieces:
        if len(piece) > CHUNK_BYTES_MIN:
            chunks.append(b"".join(parts))
            parts.clear()
            chunks.append(piece)
        else:
            parts.append(piece)
