"""Stops the calls of one step while the other side is down.

    CLOSED ──(ratio of failed calls, on enough keys)──▶ OPEN ──(after probe_s)──▶ HALF_OPEN: one call probes
       ▲                                                 ▲  (probe_s doubles)          │
       └──────────────────── probe succeeded ────────────┴─────── probe failed ────────┘

What counts. Calls that ended well and transient failures. Poison, `RetryAfter` and filtered records say nothing about
the other side. Failures must be on several keys: one stuck key fails for itself.

When it opens. Not on the ratio over all of `window_s`: after ten healthy seconds at 20,000 calls a second an outage
would have to last for minutes to show, while records use up their attempts in 1.5 s. So the window is cut into
`BUCKETS` and it opens as soon as *any* stretch of buckets up to now has the ratio on enough calls and keys. The
shortest stretch is the bucket before this one and this one: judging a bucket that has just begun would take a few
failures in a row for an outage.

While it is open the plane takes back the attempt of every call that fails, so nothing dies because of the breaker, and
lanes stay as they are, so nothing is reordered by it. A probe that says nothing (cancelled, filtered, of a partition
that has moved) is followed by another at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from anabranch.core.policies import Breaker
    from anabranch.core.work import Task

BUCKETS = 50
"""Of `window_s`, so 0.2 s each by default: an outage shows within 0.6 s, four attempts take 0.56 s at the least."""


class BreakerState(Enum):
    """Whether calls are made."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(slots=True)
class _Bucket:
    index: int
    calls: int = 0
    failures: int = 0
    keys: set[Hashable] = field(default_factory=set)
    """Those that failed; no more than are needed to say that it was on enough keys."""


class StepBreaker:
    """The breaker of one step."""

    __slots__ = (
        "_buckets",
        "_delay_s",
        "_policy",
        "_width_s",
        "last_error",
        "opened",
        "probe",
        "probe_at",
        "since",
        "state",
    )

    def __init__(self, policy: Breaker) -> None:
        self._policy = policy
        self._width_s = policy.window_s / BUCKETS
        self._buckets: deque[_Bucket] = deque()
        self._delay_s = policy.probe_s
        self.state = BreakerState.CLOSED
        self.since = 0.0
        """When it left or entered CLOSED."""
        self.probe_at = 0.0
        """While OPEN: from when on one call may probe."""
        self.probe: Task | None = None
        self.last_error = ""
        self.opened = 0
        """How often."""

    @property
    def is_closed(self) -> bool:
        """Whether calls are made as usual."""
        return self.state is BreakerState.CLOSED

    def may_probe(self, now: float) -> bool:
        """Whether one call may find out if the other side is back."""
        return self.state is BreakerState.OPEN and now >= self.probe_at

    def begin_probe(self, task: Task) -> None:
        """Note which call it is."""
        self.state = BreakerState.HALF_OPEN
        self.probe = task

    def observe(self, succeeded: int, failed: Sequence[Hashable], error: str, now: float) -> None:
        """Take the calls that ended: how many well, and the keys of those that failed, with the last failure's text."""
        if not self._policy.enabled or self.state is not BreakerState.CLOSED:
            if failed:
                self.last_error = error
            return
        bucket = self._bucket(now)
        bucket.calls += succeeded + len(failed)
        if failed:
            bucket.failures += len(failed)
            self.last_error = error
            missing = self._policy.keys_min - len(bucket.keys)
            if missing > 0:
                bucket.keys.update(failed if len(failed) <= missing else failed[: 4 * missing])
            if self._is_down(bucket.index):
                self._open(now)

    def probe_ended(self, succeeded: bool | None, now: float) -> None:
        """Take the probe's end: the other side is back, or not, or it says nothing."""
        self.probe = None
        if succeeded:
            self.state = BreakerState.CLOSED
            self.since = now
            self._delay_s = self._policy.probe_s
        else:
            self.state = BreakerState.OPEN
            if succeeded is not None:
                self._delay_s = min(self._policy.probe_s_max, self._delay_s * 2)
                self.probe_at = now + self._delay_s

    def check_invariants(self) -> None:
        """Assert all that must hold."""
        assert (self.probe is not None) == (self.state is BreakerState.HALF_OPEN), "one call probes while half-open"
        assert self.is_closed or not self._buckets, "an open breaker starts afresh"
        assert len(self._buckets) <= BUCKETS + 1, "the window is bounded"
        indexes = [bucket.index for bucket in self._buckets]
        assert indexes == sorted(set(indexes)), "buckets rise"

    def _bucket(self, now: float) -> _Bucket:
        index = int(now / self._width_s)
        buckets = self._buckets
        if not buckets or buckets[-1].index < index:
            buckets.append(_Bucket(index))
            while buckets[0].index < index - BUCKETS:
                buckets.popleft()
        return buckets[-1]

    def _is_down(self, current: int) -> bool:
        policy = self._policy
        calls = failures = 0
        keys: set[Hashable] = set()
        buckets = self._buckets
        for place in range(len(buckets) - 1, -1, -1):
            bucket = buckets[place]
            calls += bucket.calls
            failures += bucket.failures
            keys |= bucket.keys
            if place and buckets[place - 1].index >= current - 1:
                continue
            if calls >= policy.calls_min and failures >= policy.ratio * calls and len(keys) >= policy.keys_min:
                return True
        return False

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self.since = now
        self.probe_at = now + self._delay_s
        self.opened += 1
        self._buckets.clear()
