"""What the plane knows about itself, as plain frozen values. Metrics, pages and status lines read nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.control.sentences import describe

if TYPE_CHECKING:
    from anabranch.control.assignment import Assignment
    from anabranch.control.step_queue import StepQueue


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """One partition that is ours."""

    topic: str
    partition: int
    epoch: int
    phase: str
    """owned, draining or closing."""
    position: int
    committable: int
    committed: int
    high_watermark: int | None
    ahead: int
    incomplete: int
    held: int
    """Records in memory; in a drain fewer than are incomplete."""
    waiting: int
    """Records in lanes whose head waits for its next attempt."""
    bytes: int
    records_max: int
    """Its share of the bound."""
    bytes_max: int
    gate: str
    """open or closed."""
    blocker_offset: int | None
    blocker_age_s: float | None
    """Since its first call began; None if none has."""
    blocker_why: str
    """What it is doing, as a sentence; empty without one."""
    blocker_timestamp_ms: int | None
    """The timestamp of the record at committable: now less this is the true lag in seconds."""
    true_lag: int | None
    """high_watermark - committable; None while the watermark is not known."""


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """One step."""

    name: str
    concurrency: int
    running: int
    ready_lanes: int
    waiting_lanes: int
    done: int
    """Calls that ended well."""
    failed: int
    """Calls that ended with an error that may pass."""
    retries: int
    breaker: str
    """closed, open or half-open."""
    breaker_opened: int
    breaker_last_error: str
    """While it is not closed: how the call failed that failed last."""


@dataclass(frozen=True, slots=True)
class PlaneStatistics:
    """Everything, at one moment."""

    partitions: tuple[PartitionStatistics, ...]
    steps: tuple[StepStatistics, ...]
    handled: int
    filtered: int
    dead: int
    retries: int
    skipped: int
    """By carryovers."""
    late: int
    """Completions and deliveries of partitions that were gone."""
    unknown: int
    """Completions of calls that had ended already."""
    abandoned: int
    """Records that had begun and were given up in drains."""
    commits: int
    commits_refused: int
    commits_in_flight: int
    running: int
    held: int
    waiting: int
    bytes: int
    incomplete: int
    ahead: int
    true_lag: int | None
    """Of the partitions whose watermark is known; None when there is none."""
    fenced_calls: int
    """Calls of older epochs that still run; their keys wait for them."""
    halted: str
    """Why, or empty."""
    stopping: bool


def partition_statistics(assignment: Assignment, now: float) -> PartitionStatistics:
    """Look at one partition."""
    tracker = assignment.tracker
    blocker = assignment.blocker()
    begun = blocker is not None and (blocker.step > 0 or blocker.attempt > 0)
    committable = tracker.committable
    high = assignment.high_watermark
    return PartitionStatistics(
        topic=assignment.partition.topic,
        partition=assignment.partition.partition,
        epoch=assignment.epoch,
        phase=assignment.phase.value,
        position=tracker.position,
        committable=committable,
        committed=assignment.committed,
        high_watermark=high,
        ahead=tracker.ahead,
        incomplete=tracker.incomplete,
        held=len(assignment.tasks),
        waiting=assignment.waiting_records(),
        bytes=assignment.bytes,
        records_max=assignment.gate.records_max,
        bytes_max=assignment.gate.bytes_max,
        gate="closed" if assignment.gate.is_closed else "open",
        blocker_offset=None if tracker.blocker_ordinal is None else committable,
        blocker_age_s=now - blocker.first_begun_at if blocker is not None and begun else None,
        blocker_why="" if blocker is None else describe(blocker, now),
        blocker_timestamp_ms=None if blocker is None else blocker.record.timestamp_ms,
        true_lag=None if high is None else max(0, high - committable),
    )


def step_statistics(step: StepQueue) -> StepStatistics:
    """Look at one step."""
    return StepStatistics(
        name=step.name,
        concurrency=step.concurrency,
        running=step.running,
        ready_lanes=step.ready_count,
        waiting_lanes=step.waiting,
        done=step.done,
        failed=step.failed,
        retries=step.retries,
        breaker=step.breaker.state.value,
        breaker_opened=step.breaker.opened,
        breaker_last_error="" if step.breaker.is_closed else step.breaker.last_error,
    )
