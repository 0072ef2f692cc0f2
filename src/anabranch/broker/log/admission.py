"""Which batches a log takes from whom: checked before anything is written."""

from enum import Enum

from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.errors import BatchRefused
from anabranch.broker.wire.batch import (
    COMPRESSION_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    UnsupportedBatch,
    check_batch,
)
from anabranch.broker.wire.compression import CODECS
from anabranch.broker.wire.error_codes import ErrorCode

_CLIENT_ATTRIBUTES = COMPRESSION_MASK
"""Bits that a client may set today; the others have a refusal of their own."""


class Origin(Enum):
    """Where a batch comes from. A replica's keeps its offset and epoch; the other two get theirs here."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICA = "replica"


def admit(batch: memoryview | bytearray, origin: Origin, config: LogConfig) -> BatchHeader:
    """Check that `batch` is exactly one good batch that this origin may send; raise BatchRefused otherwise."""
    size = len(batch)
    if size > config.message_bytes_max and origin is Origin.CLIENT:
        raise BatchRefused(
            f"a batch of {size} bytes is larger than max.message.bytes={config.message_bytes_max}",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    try:
        header = check_batch(batch)
    except (CorruptBatch, UnsupportedBatch) as error:
        raise BatchRefused(str(error), error.code) from error
    if header.length + 12 != size:
        raise BatchRefused("more bytes follow the batch: send one batch per partition", ErrorCode.INVALID_RECORD)
    if origin is Origin.CLIENT:
        if header.attributes & ~_CLIENT_ATTRIBUTES or header.attributes >= len(CODECS):
            _refuse_attributes(header.attributes)
        if header.record_count < 1:
            raise BatchRefused("a batch without records", ErrorCode.INVALID_RECORD)
        if header.record_count != header.last_offset_delta + 1:
            raise BatchRefused("the records of a batch are not numbered without holes", ErrorCode.INVALID_RECORD)
        if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
            raise BatchRefused("a batch has a producer id and no sequence or epoch", ErrorCode.INVALID_RECORD)
    return header


def _refuse_attributes(attributes: int) -> None:
    if attributes & CONTROL:
        raise BatchRefused("clients must not write control batches", ErrorCode.INVALID_RECORD)
    if attributes & TRANSACTIONAL:
        raise BatchRefused("transactions are not served yet: leave transactional.id unset", ErrorCode.INVALID_TXN_STATE)
    if attributes & LOG_APPEND_TIME:
        raise BatchRefused("only the broker may set LogAppendTime", ErrorCode.INVALID_TIMESTAMP)
    if attributes & COMPRESSION_MASK >= len(CODECS):
        raise BatchRefused(
            f"compression number {attributes & COMPRESSION_MASK} is unknown", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
    # Kafka ignores bits that it does not know, among them bit 6 (delete horizon, KIP-534), which only brokers set.
