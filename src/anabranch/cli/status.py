"""What a running process says about itself, as the commands use it: the one place that knows its answer's names."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.cli.terminal import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

RATE_WINDOW_S = 3.0
_STATES = {"stuck": "a handler blocks the event loop", "stopping": "draining"}
OLD_S = 1.0  # a blocker younger than this is work going on, not news


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """How far one process is in one partition; a number that is not known is None."""

    topic: str
    partition: int
    committed: int | None
    committable: int | None
    high_watermark: int | None
    true_lag: int | None
    paused: bool
    """Its intake is stopped, and it is mostly waiting records that fill the bound: work alone does so all the time."""
    blocker: int | None
    blocker_age_s: float
    blocker_timestamp_ms: int | None

    @property
    def name(self) -> str:
        """Return the partition as people say it."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """How far one query is, on Spark."""

    name: str
    rows: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class Status:
    """How one process is."""

    group: str
    member: str
    pid: str
    state: str
    handled: int
    filtered: int
    dead: int
    retries: int
    skipped: int
    """Records that the owner before had settled already, as its last commit told."""
    abandoned: int
    """Records that had begun and were given up at a stop or when their partition moved: they are repeated."""
    running: int
    waiting_keys: int
    breakers_open: tuple[str, ...]
    partitions: tuple[PartitionStatus, ...]
    lost_to_retention: int
    unreachable_s: float
    """How long no broker has answered; 0 when one does."""
    unreachable_error: str
    why: tuple[str, ...]
    members: int = 0
    """On Spark: processes that the run shall have; elsewhere it is the one that answers, and this is 0."""
    members_present: int = 0
    queries: tuple[QueryStatus, ...] = ()

    @property
    def settled(self) -> int:
        """Return how many records are done with, one way or another."""
        return self.handled + self.filtered + self.dead

    @property
    def true_lag(self) -> int | None:
        """Return the true lag of all partitions, of those where it is known; None when it is known of none."""
        known = [each.true_lag for each in self.partitions if each.true_lag is not None]
        return sum(known) if known else None

    @property
    def blocker(self) -> PartitionStatus | None:
        """Return the partition that has been held back the longest."""
        blocked = [each for each in self.partitions if each.blocker is not None]
        return max(blocked, key=lambda each: each.blocker_age_s, default=None)

    @property
    def signature(self) -> object:
        """Return what is worth a line of its own when it changes."""
        paused = tuple(each.name for each in self.partitions if each.paused)
        unreachable = self.unreachable_s >= OLD_S
        members = self.members_present
        return (
            self.state,
            self.breakers_open,
            paused,
            len(self.partitions),
            self.lost_to_retention,
            unreachable,
            members,
        )


class Rate:
    """Records per second over the last few seconds."""

    def __init__(self, window_s: float = RATE_WINDOW_S) -> None:
        """Begin with nothing counted."""
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()

    def observe(self, count: int, now: float) -> float:
        """Take the count so far and return its growth per second."""
        self._seen.append((now, count))
        while len(self._seen) > 2 and now - self._seen[1][0] >= self._window_s:
            self._seen.popleft()
        begun_at, begun_count = self._seen[0]
        return (count - begun_count) / (now - begun_at) if now > begun_at else 0.0


def status_line(status: Status, rate: float) -> str:
    """Return the line that shows a run: always the same numbers first, then only what is out of the ordinary."""
    parts = [
        f"{status.group}: {rate:,.0f}/s",
        f"{status.running:,} running",
        f"{plural(status.waiting_keys, 'key')} waiting",
        "lag unknown" if status.true_lag is None else f"lag {status.true_lag:,}",
        *_members(status),
    ]
    if status.state != "running":
        parts.append(_STATES.get(status.state, status.state))
    elif not status.partitions:
        parts.append("no partitions yet")
    if status.unreachable_s >= OLD_S:
        parts.append(f"no broker answers for {age_text(status.unreachable_s)}")
    parts += [f"breaker of {step} open" for step in status.breakers_open]
    paused = sum(each.paused for each in status.partitions)
    if paused:
        parts.append(f"{plural(paused, 'partition')} paused")
    blocker = status.blocker
    if blocker is not None and blocker.blocker_age_s >= OLD_S:
        parts.append(f"blocker {blocker.name}@{blocker.blocker} for {age_text(blocker.blocker_age_s)}")
    if status.dead:
        parts.append(plural(status.dead, "dead letter"))
    if status.lost_to_retention:
        parts.append(f"{status.lost_to_retention:,} lost to retention")
    return ", ".join([*parts, *map(_query, status.queries)])


def _members(status: Status) -> list[str]:
    if not status.members:
        return []
    missing = f"{status.members_present} of " if status.members_present < status.members else ""
    return [f"{missing}{plural(status.members, 'member')}"]


def _query(query: QueryStatus) -> str:
    lag = "" if query.lag is None else f" lag {query.lag:,}"
    return f"query {query.name} {plural(query.rows, 'row')}{lag}"


def summary_line(status: Status, duration_s: float, why_ended: str) -> str:
    """Return the last line of a run."""
    text = f"{status.group}: {why_ended} after {age_text(duration_s)}: {plural(status.settled, 'record')} settled"
    text += f" ({status.handled:,} handled, {status.filtered:,} filtered, {status.dead:,} dead)"
    text += f", {status.retries:,} {'retry' if status.retries == 1 else 'retries'}"
    if status.skipped:
        text += f", {status.skipped:,} skipped that were settled before"
    if status.lost_to_retention:
        text += f", {status.lost_to_retention:,} lost to retention before they were read"
    if status.abandoned:
        text += f", {status.abandoned:,} begun and left to be repeated"
    return text


def age_text(seconds: float) -> str:
    """Return a time span as people say it: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for large, small, name_large, name_small in ((60, 1, "min", "s"), (3600, 60, "h", "min"), (86_400, 3600, "d", "h")):
        if whole < large * (60 if large < 3600 else 24) or large == 86_400:
            rest = whole % large // small
            return f"{whole // large} {name_large}" + (f" {rest} {name_small}" if rest else "")
    raise AssertionError(whole)


def parse_status(answer: Mapping[str, Any]) -> Status:
    """Read a process's answer; what it does not tell yet, or another version does not tell at all, is 0 or None."""
    steps = list(answer.get("steps", {}).values())
    source = answer.get("source", {})
    members = answer.get("members", {})
    return Status(
        group=str(answer.get("group", "")),
        member=str(answer.get("member", "")),
        pid=str(answer.get("pid", "")),
        state="stuck" if answer.get("stale") else str(answer.get("state", "")),
        handled=int(answer.get("handled", 0)),
        filtered=int(answer.get("filtered", 0)),
        dead=int(answer.get("dead", 0)),
        retries=int(answer.get("retries", 0)),
        skipped=int(answer.get("skipped", 0)),
        abandoned=int(answer.get("abandoned", 0)),
        running=int(answer.get("running", 0)),
        waiting_keys=sum(int(step["waiting_lanes"]) for step in steps),
        breakers_open=tuple(str(step["name"]) for step in steps if step["breaker"] != "closed"),
        partitions=tuple(map(_partition, answer.get("partitions", {}).values())),
        lost_to_retention=int(answer.get("lost_to_retention", 0)),
        unreachable_s=float(source.get("unreachable_s", 0.0)),
        unreachable_error=str(source.get("last_error", "")),
        why=tuple(map(str, answer.get("why", ()))),
        members=len(members),
        members_present=sum(each.get("state") != "absent" for each in members.values()),
        queries=tuple(
            QueryStatus(name, int(each.get("rows", 0)), each.get("lag"))
            for name, each in answer.get("queries", {}).items()
        ),
    )


def _partition(told: Mapping[str, Any]) -> PartitionStatus:
    return PartitionStatus(
        topic=str(told["topic"]),
        partition=int(told["partition"]),
        committed=told.get("committed"),
        committable=told.get("committable"),
        high_watermark=told.get("high_watermark"),
        true_lag=told.get("true_lag"),
        paused=told.get("gate") == "closed" and 2 * told.get("waiting", 0) >= told.get("held", 0),
        blocker=told.get("blocker_offset"),
        blocker_age_s=told.get("blocker_age_s") or 0.0,
        blocker_timestamp_ms=told.get("blocker_timestamp_ms"),
    )
