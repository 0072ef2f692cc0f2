"""Read, check and patch the header of a record batch (magic 2, KIP-98), without touching its records.

A batch stays bytes from socket to disk to socket. What the broker needs of it is in the first 61 bytes:

    0  base offset i64      17 CRC-32C u32              43 producer id i64
    8  length i32           21 attributes i16           51 producer epoch i16
    12 leader epoch i32     23 last offset delta i32    53 base sequence i32
    16 magic i8             27 base timestamp i64       57 record count i32
                            35 largest timestamp i64    61 records

`length` counts from byte 12 on. The CRC covers byte 21 to the end: a broker may set the base offset and the leader
epoch without computing it again, and nothing protects these two: who reads them back from a disk compares the offset
with its neighbours'. Attributes: bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control.

Magic 0 and 1 (before Kafka 0.11) have their magic byte at the same place and are refused by name.
"""

from struct import Struct
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from anabranch.broker.wire.compression import CODECS
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.errors import WireError

HEADER_BYTES = 61
PREFIX_BYTES = 12
"""Base offset and length: what stands before the part that `length` counts."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

HEADER = Struct(">qiibIhiqqqhii")
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES


class CorruptBatch(WireError):
    """Bytes that are not the batch they should be: too short, a wrong CRC, counts that cannot be."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnsupportedBatch(WireError):
    """A batch in a message format other than magic 2."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class BatchHeader(NamedTuple):
    """The fixed fields of a batch; `size` is the whole batch in bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """All bytes of the batch, base offset and length included."""
        return self.length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record (or of one that compaction removed)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> str:
        """The codec's name; `unknown` for the numbers that Kafka has not given out."""
        number = self.attributes & COMPRESSION_MASK
        return CODECS[number] if number < len(CODECS) else "unknown"

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds markers instead of records."""
        return bool(self.attributes & CONTROL)

    @property
    def timestamp_type(self) -> str:
        """`CreateTime` or `LogAppendTime`; with the latter `max_timestamp` is every record's."""
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME else "CreateTime"


def read_header(data: memoryview | bytes | bytearray, position: int = 0) -> BatchHeader:
    """Read the header at `position`, believing nothing but its length in `data`."""
    if position < 0 or len(data) - position < HEADER_BYTES:
        raise CorruptBatch(f"a batch header has {HEADER_BYTES} bytes, {max(0, len(data) - position)} are left")
    return BatchHeader._make(HEADER.unpack_from(data, position))


def check_batch(data: memoryview | bytes | bytearray, position: int = 0) -> BatchHeader:
    """Check length, magic, CRC and counts of the batch at `position` and give its header. Copies nothing."""
    header = read_header(data, position)
    length = header.length
    if header.magic != 2:
        if header.magic in {0, 1}:
            raise UnsupportedBatch(
                f"message format {header.magic} is not supported: use a client of Kafka 0.11 or newer"
            )
        raise CorruptBatch(f"magic byte {header.magic} is not 2")
    if not _LENGTH_MIN <= length <= len(data) - position - PREFIX_BYTES:
        raise CorruptBatch(f"a batch of {length + PREFIX_BYTES} bytes does not fit into {len(data) - position}")
    if crc32c(memoryview(data)[position + 21 : position + PREFIX_BYTES + length]) != header.crc:
        raise CorruptBatch("the CRC of a batch does not match its bytes")
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptBatch(
            f"{header.record_count} records do not fit a last offset delta of {header.last_offset_delta}"
        )
    return header


def patch(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch in place; both are outside the CRC."""
    _BASE_OFFSET.pack_into(buffer, 0, base_offset)
    _LEADER_EPOCH.pack_into(buffer, 12, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, attributes: int, timestamp_ms: int) -> None:
    """Make `timestamp_ms` the time of all records of the batch (LogAppendTime), in place, and compute the CRC again."""
    _ATTRIBUTES.pack_into(buffer, 21, attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(buffer, 35, timestamp_ms)
    write_crc(buffer)


def write_crc(buffer: bytearray | memoryview) -> None:
    """Compute the CRC of the one batch in `buffer` and write it into place."""
    _CRC.pack_into(buffer, 17, crc32c(memoryview(buffer)[21:]))
