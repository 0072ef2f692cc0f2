"""What a partition's log answers to an append and to a look inside."""

from typing import NamedTuple


class Appended(NamedTuple):
    """Where a batch is in the log. A duplicate was there before; acknowledge it when it is below the high watermark."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class LogStatistics(NamedTuple):
    """A snapshot for metrics and tests."""

    log_start: int
    high_watermark: int
    log_end: int
    leader_epoch: int
    bytes: int
    unsynced_bytes: int
    segments: int
    producers: int
    failed: bool
    checkpoint_failures: int
