"""The queue of one key's records within one partition and one step.

A lane exists while it has work. Its head is the one record of the key that is being dealt with in this step; the others
wait behind it in order of arrival. What the head is doing is the lane's state:

    READY ──▶ RUNNING ──▶ (the next record's READY, or the lane ends: ENDED)
      ▲          ├──▶ WAITING   for its next attempt ──▶ READY
      │          ├──▶ WRITING   until its outputs are acknowledged
      │          └──▶ DYING     until its dead letter is acknowledged
    FENCED       until a call of an older epoch for the same key has really ended
    STRANDED     its head was given up in a drain: nothing of this key may pass this step any more
    ORPHANED     the assignment is gone and the call still runs

Keys are compared as they are, never by hash or identity. A record without an order of its own has its offset as key, so
that it is alone in its lane and the same record of a later epoch still finds its own old call.

The followers are a deque that is made for the second record: a topic of unique keys would otherwise pay 600 bytes each.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator

    from anabranch.control.step_queue import StepQueue
    from anabranch.core.work import Task

LaneKey = bytes | int | None
"""The ordering key; the offset of a record without one; None for all records of a partition."""


class LaneState(Enum):
    """What a lane's head is doing."""

    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    WRITING = "writing"
    DYING = "dying"
    FENCED = "fenced"
    STRANDED = "stranded"
    ORPHANED = "orphaned"
    ENDED = "ended"


class Lane:
    """One key in one step of one assignment."""

    __slots__ = ("due", "failure", "head", "key", "passed", "rest", "state", "step")

    def __init__(self, key: LaneKey, step: StepQueue, head: Task, state: LaneState) -> None:
        self.key = key
        self.step = step
        self.head = head
        self.state = state
        self.rest: deque[Task] | None = None
        self.due = 0.0
        """When a waiting head is tried again."""
        self.passed = 0
        """How many of its entries in the queue of ready lanes, the oldest ones, no longer count."""
        self.failure: tuple[int, str] | None = None
        """The ordinal of the record that failed last, and how: text only, because an exception holds its frames."""

    def __repr__(self) -> str:
        return f"<Lane {self.key!r} step={self.step.index} {self.state.value} head={self.head!r}>"

    def tasks(self) -> Iterator[Task]:
        """Give the head, then those behind it."""
        yield self.head
        yield from self.rest or ()
