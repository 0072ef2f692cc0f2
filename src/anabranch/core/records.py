"""The record: what the log holds, as every part of the project hands it on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log. `None` as key or value is Kafka's null, which is not the same as `b""`."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1
    leader_epoch: int = -1
