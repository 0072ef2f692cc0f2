"""What a partition's log refuses or cannot do, each with the error code that a client is answered."""

from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.core.errors import PeerError


class LogError(PeerError):
    """An answer other than success; `code` is what the client gets to see."""

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code


class BatchRefused(LogError):
    """A batch that this log does not take; nothing has changed."""


class OffsetOutOfRange(LogError):
    """An offset below log_start or above log_end."""

    def __init__(self, offset: int, log_start: int, log_end: int) -> None:
        super().__init__(f"offset {offset} is not within {log_start} to {log_end}", ErrorCode.OFFSET_OUT_OF_RANGE)


class DamagedLog(LogError):
    """Stored bytes that are not what was written; they are reported and never served."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.CORRUPT_MESSAGE)


class StorageFailed(LogError):
    """The disk is full or failing; nothing has been acknowledged that is not there."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.KAFKA_STORAGE_ERROR)
