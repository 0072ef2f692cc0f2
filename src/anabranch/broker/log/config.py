"""The settings of one partition's log, as values; where they come from (flags, topic configs) is not known here."""

from dataclasses import dataclass

from anabranch.core.errors import UsageError

SEGMENT_BYTES_LIMIT = 2**31 - 1
"""Positions in an index are 32 bits wide; Kafka's own limit is the same."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Replaceable while the log is open: `log.config = …`; Kafka's names and defaults in the comments."""

    segment_bytes: int = 1024 * 1024 * 1024  # segment.bytes
    segment_ms: int = 7 * 24 * 60 * 60 * 1000  # segment.ms
    index_interval_bytes: int = 4096  # index.interval.bytes
    message_bytes_max: int = 1_048_588  # max.message.bytes
    retention_ms: int = 7 * 24 * 60 * 60 * 1000  # retention.ms; -1: for ever
    retention_bytes: int = -1  # retention.bytes; -1: without limit
    timestamp_type: str = "CreateTime"  # message.timestamp.type
    wait_for_sync: bool = False
    """Flush always: the high watermark rises only by `end_sync`."""
    checkpoint_bytes: int = 64 * 1024 * 1024
    """How far the active segment may grow past its clean point before a sync moves it: bounds the scan at start."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 1 <= self.segment_bytes <= SEGMENT_BYTES_LIMIT:
            raise UsageError(f"segment_bytes={self.segment_bytes} must be within 1 and {SEGMENT_BYTES_LIMIT}")
        if not 1 <= self.message_bytes_max <= SEGMENT_BYTES_LIMIT:
            raise UsageError(f"message_bytes_max={self.message_bytes_max} must be within 1 and {SEGMENT_BYTES_LIMIT}")
        if self.index_interval_bytes < 0 or self.checkpoint_bytes < 1 or self.segment_ms < 1:
            raise UsageError("index_interval_bytes must not be negative; checkpoint_bytes and segment_ms at least 1")
        if self.timestamp_type not in {"CreateTime", "LogAppendTime"}:
            raise UsageError(f"timestamp_type={self.timestamp_type!r} must be CreateTime or LogAppendTime")
