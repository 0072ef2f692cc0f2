"""Which segments are due for removal, by age and by size: never the active one, never above the high watermark."""

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.segment import Segment


class Removed(NamedTuple):
    """A segment that was removed, and why."""

    base_offset: int
    next_offset: int
    size: int
    reason: str


def due_for_removal(
    segments: Sequence[Segment], config: LogConfig, high_watermark: int, now_ms: int
) -> list[tuple[Segment, str]]:
    """Give the oldest segments that are due, in order; the first that is not due keeps all after it.

    Age is wall time against the largest timestamp in the segment, so a producer's clock in the future keeps its
    segment. A segment without any timestamp is never old: its age is not known. By size a segment goes only when what
    is left still holds `retention_bytes`.
    """
    total = sum(segment.size for segment in segments)
    due = []
    for segment in segments[:-1]:
        if segment.next_offset > high_watermark:
            break
        if 0 <= config.retention_bytes <= total - segment.size:
            reason = f"more than {config.retention_bytes} bytes are left without it"
        elif config.retention_ms >= 0 and 0 <= segment.max_timestamp < now_ms - config.retention_ms:
            reason = f"its newest record is older than {config.retention_ms} ms"
        else:
            break
        total -= segment.size
        due.append((segment, reason))
    return due
