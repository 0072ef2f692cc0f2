"""A record on its way out: `anabranch.core.records.Record` before the log has given it a place."""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class NewRecord(NamedTuple):
    """A record to be written; without a partition the key decides, without a timestamp the time of sending."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None
