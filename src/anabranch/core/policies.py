"""How a pipeline behaves when things go wrong or get full: small frozen groups, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from anabranch.core.errors import UsageError


class Ordering(Enum):
    """Which records keep their order."""

    KEY = "key"
    PARTITION = "partition"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Retry:
    """When a failed call is tried again, and when its record is given up."""

    attempts: int | None = 5
    """Calls in all; None for ever."""
    initial_s: float = 0.1
    max_s: float = 2.0
    factor: float = 2.0
    jitter: float = 0.2
    """A delay varies by up to this part of itself, either way, so that failing keys do not come back in step."""
    age_s_max: float | None = None
    """Give up on a record this long after its first call began."""
    poison: tuple[type[BaseException], ...] = ()
    """Errors that cannot pass: the record goes to the dead letters at once."""
    transient: tuple[type[BaseException], ...] = (Exception,)
    """Errors that may pass. Anything else is poison."""
    fatal: tuple[type[BaseException], ...] = ()
    """Errors that stop the pipeline."""

    def __post_init__(self) -> None:
        _check(
            self.attempts is None or self.attempts >= 1, "Retry.attempts", self.attempts, "at least 1, or None for ever"
        )
        _check(self.initial_s >= 0, "Retry.initial_s", self.initial_s, "0 or more seconds")
        _check(self.max_s >= self.initial_s, "Retry.max_s", self.max_s, "at least initial_s")
        _check(self.factor >= 1, "Retry.factor", self.factor, "at least 1")
        _check(0 <= self.jitter < 1, "Retry.jitter", self.jitter, "from 0 to below 1")
        _check(self.age_s_max is None or self.age_s_max > 0, "Retry.age_s_max", self.age_s_max, "above 0, or None")


@dataclass(frozen=True, slots=True)
class Commit:
    """How often progress is stored."""

    interval_s: float = 5.0
    count: int = 1000
    """Commit when this many records settled since the last one, at most every `min_interval_s`."""
    min_interval_s: float = 0.1

    def __post_init__(self) -> None:
        _check(self.interval_s > 0, "Commit.interval_s", self.interval_s, "above 0 seconds")
        _check(self.count >= 1, "Commit.count", self.count, "at least 1")
        _check(self.min_interval_s >= 0, "Commit.min_interval_s", self.min_interval_s, "0 or more seconds")


@dataclass(frozen=True, slots=True)
class Gate:
    """How much may be held in this process before intake stops, all partitions together.

    Each partition has an even share of it, at least 500 records and 512 KiB (or all of a smaller bound), and holds no
    more than that: of bytes no more than that and one record. What the source has fetched beyond it is bounded, too: by
    half as many records and a quarter as many bytes.
    """

    records_max: int = 50_000
    bytes_max: int = 64 * 1024 * 1024
    """Keys, values and headers of the records, and half a KiB for each."""
    close_at: float = 1.0
    open_at: float = 0.7

    def __post_init__(self) -> None:
        _check(self.records_max >= 1, "Gate.records_max", self.records_max, "at least 1")
        _check(self.bytes_max >= 1024, "Gate.bytes_max", self.bytes_max, "at least 1024")
        _check(0 < self.open_at < self.close_at <= 1, "Gate.open_at", self.open_at, "above 0 and below close_at")


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a step stops calling because the other side is down. It keeps order and sends no dead letters."""

    enabled: bool = True
    ratio: float = 0.5
    calls_min: int = 20
    keys_min: int = 5
    window_s: float = 10.0
    probe_s: float = 1.0
    """How long it stays open before one call probes; doubled after each failed probe, up to `probe_s_max`."""
    probe_s_max: float = 30.0

    def __post_init__(self) -> None:
        _check(0 < self.ratio <= 1, "Breaker.ratio", self.ratio, "above 0 and at most 1")
        _check(self.calls_min >= 1, "Breaker.calls_min", self.calls_min, "at least 1")
        _check(self.keys_min >= 1, "Breaker.keys_min", self.keys_min, "at least 1")
        _check(self.window_s > 0, "Breaker.window_s", self.window_s, "above 0 seconds")
        _check(0 < self.probe_s <= self.probe_s_max, "Breaker.probe_s", self.probe_s, "above 0 and at most probe_s_max")


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where records go that cannot be handled, and when so many of them mean that something else is wrong."""

    topic: str
    ratio_max: float = 0.5
    window: int = 1000
    run_max: int = 100

    def __post_init__(self) -> None:
        _check(bool(self.topic), "dead_letters topic", self.topic, "the name of a topic")
        _check(0 < self.ratio_max <= 1, "dead_letters ratio_max", self.ratio_max, "above 0 and at most 1")
        _check(self.window >= 1, "dead_letters window", self.window, "at least 1")
        _check(self.run_max >= 1, "dead_letters run_max", self.run_max, "at least 1")


def _check(holds: bool, name: str, given: object, allowed: str) -> None:
    if not holds:
        raise UsageError(f"{name}: given {given!r}, allowed is {allowed}")
