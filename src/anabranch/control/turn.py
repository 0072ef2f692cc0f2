"""What one step of the plane gathers: the time, the way out, and the order of effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.control.effects import (
    Cancel,
    Commit,
    DeadLetter,
    Effect,
    Halt,
    Pause,
    Released,
    Resume,
    Settled,
    Stopped,
    Submit,
    Write,
)

if TYPE_CHECKING:
    from anabranch.control.assignment import Assignment
    from anabranch.control.effects import Room
    from anabranch.core.work import Task, TopicPartition


class Turn:
    """The surroundings of a step: each part of the plane adds to it what it wants done."""

    __slots__ = (
        "cancelled",
        "commits",
        "dead",
        "filtered",
        "halt",
        "handled",
        "letters",
        "now",
        "paused",
        "released",
        "resumed",
        "stopped",
        "submitted",
        "touched",
        "written",
    )

    def __init__(self) -> None:
        self.now = 0.0
        self.touched: list[Assignment] = []
        """Where something was settled."""
        self.handled: list[Task] = []
        """Kept only for a plane that reports it."""
        self.filtered: list[Task] = []
        self.dead: list[Task] = []
        self.cancelled: list[Task] = []
        self.written: list[Task] = []
        self.letters: list[DeadLetter] = []
        self.submitted: list[Task] = []
        self.paused: list[TopicPartition] = []
        self.resumed: dict[TopicPartition, Room] = {}
        self.commits: list[Commit] = []
        self.released: list[TopicPartition] = []
        self.halt: Halt | None = None
        self.stopped: Stopped | None = None

    def effects(self, reports_settled: bool) -> list[Effect]:
        """Give what was gathered, in the order in which it is to be done, and gather anew."""
        effects: list[Effect] = []
        if reports_settled:
            self._report(effects)
        if self.cancelled:
            effects.append(Cancel(self.cancelled))
            self.cancelled = []
        if self.written:
            effects.append(Write(self.written))
            self.written = []
        if self.letters:
            effects.extend(self.letters)
            self.letters = []
        if self.submitted:
            effects.append(Submit(self.submitted))
            self.submitted = []
        self._add_rare(effects)
        return effects

    def _report(self, effects: list[Effect]) -> None:
        if self.handled:
            effects.append(Settled(self.handled, "handled"))
            self.handled = []
        if self.filtered:
            effects.append(Settled(self.filtered, "filtered"))
            self.filtered = []
        if self.dead:
            effects.append(Settled(self.dead, "dead"))
            self.dead = []

    def _add_rare(self, effects: list[Effect]) -> None:
        if self.paused:
            effects.append(Pause(self.paused))
            self.paused = []
        if self.resumed:
            effects.append(Resume(list(self.resumed), self.resumed))
            self.resumed = {}
        if self.commits:
            effects.extend(self.commits)
            self.commits = []
        if self.released:
            effects.append(Released(self.released))
            self.released = []
        if self.halt is not None:
            effects.append(self.halt)
            self.halt = None
        if self.stopped is not None:
            effects.append(self.stopped)
            self.stopped = None
