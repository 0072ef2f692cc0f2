"""A record on its way to the handler, and what came of it.

A `Task` is made when its record is fetched and lives until the record is settled: it goes through the steps and the
attempts, one at a time. Whoever holds it changes only what is his: control the place (step, attempt, lane), the engine
the value. These are the objects of the hot path: slotted, compared by identity, made once per record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.core.records import Record


class TopicPartition(NamedTuple):
    """A partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Task:
    """A record with its epoch, on its way through the steps."""

    __slots__ = (
        "assignment",
        "attempt",
        "begun_at",
        "bytes",
        "epoch",
        "first_begun_at",
        "lane",
        "ordinal",
        "outputs",
        "record",
        "step",
        "value",
    )

    def __init__(self, record: Record, assignment: Any, epoch: int, ordinal: int, size: int) -> None:
        self.record = record
        self.assignment = assignment
        """Control's own: the assignment of the partition that this record belongs to."""
        self.epoch = epoch
        self.ordinal = ordinal
        """Control's own: the record's place in the order of arrival in its assignment."""
        self.bytes = size
        """What the record counts against the bound of memory."""
        self.step = 0
        self.attempt = 0
        """1 while the first call runs; 0 before it."""
        self.lane: Any = None
        self.value: Any = None
        """What the step is called with: the record itself before step 0, then what the step before returned."""
        self.outputs: Sequence[Any] = ()
        """What is to be written; kept until acknowledged, so that a delivery is repeated and never the handler."""
        self.begun_at = 0.0
        """When its latest attempt was submitted, on the plane's clock."""
        self.first_begun_at = 0.0
        """When the record's first attempt of all was submitted: its age counts from here."""

    def __repr__(self) -> str:
        record = self.record
        return f"<Task {record.topic}/{record.partition}@{record.offset} step={self.step} attempt={self.attempt}>"


FILTERED: Final = object()
"""The value of a completion whose record a filter dropped: it is settled without an output."""


class Completion(NamedTuple):
    """An engine's report on one task. Exactly one comes for every task submitted, also for a cancelled one."""

    task: Task
    value: Any
    """What the step returned (the next step's input, or the outputs of the last step), or FILTERED."""
    error: BaseException | None
    """Why it failed; None when it is done. A time-out is a HandlerTimeout, a cancellation asyncio.CancelledError."""
    cancelled: bool = False
    """The call was cancelled by us (revoke, stop): it says nothing about the record."""


class Delivery(NamedTuple):
    """A sink's report on one task: all its outputs, or its dead letter, are acknowledged, or never will be."""

    task: Task
    error: Exception | None
    """None: acknowledged. Else a permanent refusal (size, authorisation): the pipeline halts with it."""


class Output(NamedTuple):
    """One record to be written, encoded: what a last step returned."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int | None = None
