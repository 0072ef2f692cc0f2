"""Answers "why is it not committing?" in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.control.assignment import Assignment, Phase
from anabranch.control.sentences import describe, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from anabranch.control.commits import CommitSchedule
    from anabranch.control.step_queue import StepQueue

COMMIT_SLOW_S = 1.0
"""A commit that is under way for less is not worth a sentence."""


def explain(
    assignments: Sequence[Assignment], steps: Iterable[StepQueue], commits: CommitSchedule, halted: str, now: float
) -> list[str]:
    """Give all reasons, the most general ones first."""
    if halted:
        return [f"halted: {halted}"]
    sentences = list(_breakers(steps, now))
    if commits.refusal:
        sentences.append(f"the last commit was refused: {commits.refusal}")
    if commits.in_flight and now - commits.asked_at >= COMMIT_SLOW_S:
        sentences.append(f"a commit is under way for {seconds(now - commits.asked_at)}")
    if not assignments:
        sentences.append("no partition is assigned to this process")
    for assignment in assignments:
        sentences.extend(_partition(assignment, now))
    return sentences


def _breakers(steps: Iterable[StepQueue], now: float) -> Iterator[str]:
    for step in steps:
        breaker = step.breaker
        if not breaker.is_closed:
            probe = "a probe runs" if breaker.probe is not None else f"next probe in {seconds(breaker.probe_at - now)}"
            yield (
                f"the breaker of step {step.name!r} has been open for {seconds(now - breaker.since)}: "
                f"last error {breaker.last_error}; {probe}"
            )


def _partition(assignment: Assignment, now: float) -> Iterator[str]:
    if assignment.gate.is_closed:
        yield f"{assignment.partition} is paused: {_fullness(assignment)}"
    if assignment.phase is not Phase.OWNED:
        yield f"{assignment.partition} is {assignment.phase.value}: it moves to another member, or this one stops"
    tracker = assignment.tracker
    if tracker.blocker_ordinal is None:
        waits = tracker.committable - assignment.committed
        yield (
            f"{assignment.partition}: all settled up to {tracker.committable}, "
            + (f"committed {assignment.committed}, the next commit is to come" if waits else "nothing to commit")
        )
        return
    blocker = assignment.blocker()
    if blocker is None:
        yield f"{assignment.partition}: offset {tracker.committable} is left to the next owner"
    else:
        yield f"{describe(blocker, now)}; {tracker.ahead} settled ahead of it"


def _fullness(assignment: Assignment) -> str:
    """Say what fills the bound."""
    waiting = assignment.waiting_records()
    records_max, bytes_max = assignment.gate.records_max, assignment.gate.bytes_max
    if waiting * 2 > len(assignment.tasks):
        of = f"{records_max} records" if assignment.bytes < bytes_max else f"{bytes_max} bytes"
        return f"{waiting} records wait for retries and fill the bound of {of}"
    return (
        f"{len(assignment.tasks)} records of {assignment.bytes} bytes are held, {waiting} of them wait for retries; "
        f"the bound is {records_max} records or {bytes_max} bytes"
    )
