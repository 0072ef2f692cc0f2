"""The records inside a batch: read them one by one, or build a batch of them.

Nothing on the produce and fetch path comes here. Offsets by time, compaction, the group coordinator and tests do.
A record is: length, attributes i8, timestamp delta, offset delta, key, value, headers; lengths and deltas are zigzag
varints, a length of -1 is null (KIP-98). Reading does not check the CRC: `check_batch` has done so before.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from anabranch.broker.wire.batch import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    PREFIX_BYTES,
    TRANSACTIONAL,
    CorruptBatch,
    read_header,
    write_crc,
)
from anabranch.broker.wire.compression import UNCOMPRESSED_BYTES_MAX, codec_number, compress, decompress
from anabranch.broker.wire.errors import WireError


class Record(NamedTuple):
    """One record of a batch. When building a batch its `offset` is ignored: records are numbered from the base."""

    offset: int = -1
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def iterate_records(
    batch: memoryview | bytes | bytearray, uncompressed_bytes_max: int = UNCOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Read the records of the batch that `batch` starts with; malformed ones raise WireError when they are reached."""
    header = read_header(batch)
    if not HEADER_BYTES - PREFIX_BYTES <= header.length <= len(batch) - PREFIX_BYTES or header.record_count < 0:
        raise CorruptBatch("the length or the count of a batch cannot be right")
    packed = memoryview(batch)[HEADER_BYTES : header.size]
    data = bytes(decompress(header.attributes & COMPRESSION_MASK, packed, uncompressed_bytes_max))
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    position = 0
    for _ in range(header.record_count):
        length, position = _read_varint(data, position)
        end = position + length
        if length < 0 or end > len(data):
            raise CorruptBatch(f"a record of {length} bytes does not fit into {len(data) - position}")
        record = _read_record(data, position, end)
        yield Record(
            header.base_offset + record.offset,
            header.base_timestamp + record.timestamp if append_time is None else append_time,
            *record[2:],
        )
        position = end
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last record of a batch")


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: str = "none",
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Build one batch; record n has the offset `base_offset` + n. At least one record is needed."""
    listed = list(records)
    if not listed:
        raise WireError("a batch needs at least one record")
    base_timestamp = listed[0].timestamp
    body = bytearray()
    for number, record in enumerate(listed):
        _write_record(body, record, number, record.timestamp - base_timestamp)
    codec = codec_number(compression)
    attributes = codec | (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
    packed = compress(codec, body) if codec else body
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_BYTES - PREFIX_BYTES + len(packed),
        leader_epoch,
        2,
        0,
        attributes,
        len(listed) - 1,
        base_timestamp,
        max(record.timestamp for record in listed),
        producer_id,
        producer_epoch,
        base_sequence,
        len(listed),
    )
    batch += packed
    write_crc(batch)
    return batch


def _read_record(data: bytes, position: int, end: int) -> Record:
    """Read what is between `position` and `end`; offset and timestamp are deltas still."""
    position += 1  # attributes: none are in use
    timestamp_delta, position = _read_varint(data, position)
    offset_delta, position = _read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    count, position = _read_varint(data, position)
    if count < 0 or count > end - position:
        raise CorruptBatch(f"a record cannot have {count} headers")
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if count:
        headers, position = _read_headers(data, position, end, count)
    if position != end:
        raise CorruptBatch("a record's length does not match its fields")
    return Record(offset_delta, timestamp_delta, key, value, headers)


def _read_headers(data: bytes, position: int, end: int, count: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if name is None:
            raise CorruptBatch("a record header has no name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise CorruptBatch("the name of a record header is not UTF-8") from error
    return tuple(headers), position


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length < 0:
        if length == -1:
            return None, position
        raise CorruptBatch(f"a length of {length} cannot be")
    stop = position + length
    if stop > end:
        raise CorruptBatch(f"a field of {length} bytes does not fit into {end - position}")
    return data[position:stop], stop


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits."""
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        value = byte & 0x7F
        for shift in range(7, 70, 7):
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return (value >> 1) ^ -(value & 1), position + 1
    except IndexError as error:
        raise CorruptBatch("the records of a batch end within a number") from error
    raise CorruptBatch("a number in a record has more than 64 bits")


def _write_record(target: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    body = bytearray(b"\x00")
    _write_varint(body, timestamp_delta)
    _write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    _write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, value)
    _write_varint(target, len(body))
    target += body


def _write_bytes(target: bytearray, value: bytes | None) -> None:
    if value is None:
        target.append(0x01)
        return
    _write_varint(target, len(value))
    target += value


def _write_varint(target: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        target.append(value & 0x7F | 0x80)
        value >>= 7
    target.append(value)
