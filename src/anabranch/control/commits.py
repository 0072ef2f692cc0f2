"""Decides when progress is stored, and what of it.

When: by time, by count (not more often than `min_interval_s`), and when partitions close. One commit is in flight at a
time, but a revoke does not wait: inside the client's callback the answer to an earlier commit cannot arrive, so waiting
for it would last until the grace is over. The two go out in order.

What: the partitions where something was settled or read since the last commit was made up, if that changes the position
or the carryover. Behind a blocker only the carryover changes, and to write one takes up to 10 ms when it is full of
small runs; so then it is written once a second and not with every commit by count.

A position is known as committed when the answer says so, never when it is asked for; a partition that was refused is
asked for again, soon and then less and less often: most refusals come from a rebalance, in which a commit waits behind
the member's own JoinGroup and then carries the generation before, and whoever waits long after one rebalance meets the
next. An answer belongs to the assignment that asked, not to the partition: when it comes late it cannot touch a later
epoch.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from anabranch.control.assignment import Assignment, Phase
from anabranch.control.carryover import encode
from anabranch.control.effects import Commit, Position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch.control.events import CommitEnded
    from anabranch.control.turn import Turn
    from anabranch.core import policies
    from anabranch.core.work import TopicPartition

CARRYOVER_INTERVAL_S = 1.0
"""How often at the most a partition is committed whose position stands still."""
REFUSED_RETRY_S = 0.1
"""How long after a refusal it is tried again; twice as long after each further one in a row."""
REFUSED_RETRY_S_MAX = 1.0
"""How long at the most."""

InFlight = dict["TopicPartition", tuple[Assignment, Position]]


class CommitSchedule:
    """The commits of one plane."""

    __slots__ = (
        "_has_carryover",
        "_number",
        "_policy",
        "_turn",
        "asked_at",
        "ended",
        "in_flight",
        "is_changed",
        "refusal",
        "refusals",
        "refused_in_a_row",
        "retry_at",
        "since",
    )

    def __init__(self, policy: policies.Commit, has_carryover: bool, turn: Turn) -> None:
        self._policy = policy
        self._has_carryover = has_carryover
        self._turn = turn
        self._number = 0
        self.in_flight: dict[int, InFlight] = {}
        self.asked_at = float("-inf")
        """When the last commit was made up."""
        self.is_changed = False
        """Whether anything was settled or read since."""
        self.since = 0
        """How many records were settled since."""
        self.retry_at: float | None = None
        """When a refused one is tried again."""
        self.refusal = ""
        """What the last answer said, if it was no."""
        self.refusals = 0
        self.refused_in_a_row = 0
        self.ended = 0

    def begin(self, now: float) -> None:
        """Let the first interval begin when the first partition comes."""
        if self.asked_at == float("-inf"):
            self.asked_at = now

    def settled(self, count: int) -> None:
        """Take how many records were settled."""
        self.since += count
        self.is_changed = True

    def next_deadline(self) -> float | None:
        """Say when the next commit is due, as things are."""
        if self.in_flight or not self.is_changed:
            return None
        if self.retry_at is not None:
            return self.retry_at
        policy = self._policy
        return self.asked_at + (policy.min_interval_s if self.since >= policy.count else policy.interval_s)

    def ask_if_due(self, assignments: Iterable[Assignment], now: float) -> None:
        """Commit what has changed, if it is time."""
        due = self.next_deadline()
        if due is not None and due <= now:
            by_time = self.retry_at is not None or now >= self.asked_at + self._policy.interval_s
            self.asked_at = now
            self.since = 0
            self.is_changed = False
            self.retry_at = None
            self.ask(assignments, is_patient=not by_time)

    def ask(self, assignments: Iterable[Assignment], is_patient: bool = False) -> None:
        """Commit what has changed in these; a patient one puts off those that stand still."""
        asked: InFlight = {}
        now = self._turn.now
        for assignment in assignments:
            if not assignment.is_changed:
                continue
            is_young = now < assignment.asked_at + CARRYOVER_INTERVAL_S
            if is_patient and is_young and assignment.tracker.committable == assignment.committed:
                self.is_changed = True
                continue
            assignment.is_changed = False
            assignment.asked_at = now
            position = self._position(assignment)
            if position.position != assignment.committed or position.metadata != assignment.metadata:
                asked[assignment.partition] = (assignment, position)
        if asked:
            self._number += 1
            self.in_flight[self._number] = asked
            positions = {partition: position for partition, (_, position) in asked.items()}
            self._turn.commits.append(Commit(positions, self._number))

    def answered(self, event: CommitEnded, now: float) -> list[Assignment]:
        """Take an answer; give the assignments whose last commit it was: others have a later one under way."""
        number = self._match(event)
        if number is None:
            return []
        self.ended += 1
        self.refusal = ""
        asked = self.in_flight.pop(number)
        for partition, (assignment, position) in asked.items():
            error = event.errors.get(partition, "there was no answer for this partition")
            if error is None:
                assignment.committed = position.position
                assignment.metadata = position.metadata
            elif assignment.phase is not Phase.GONE:
                assignment.is_changed = self.is_changed = True
                self.refusal = f"{partition} at {position.position}: {error}"
        if self.refusal:
            self.refusals += 1
            self.refused_in_a_row += 1
            wait_s = REFUSED_RETRY_S * 2 ** min(self.refused_in_a_row - 1, 10)
            self.retry_at = now + min(wait_s, REFUSED_RETRY_S_MAX, self._policy.interval_s)
        else:
            self.refused_in_a_row = 0
        return [one for one, _ in asked.values() if not self.is_in_flight(one, after=number)]

    def is_in_flight(self, assignment: Assignment, after: int = 0) -> bool:
        """Whether an answer for this assignment is awaited, of a commit with a number above `after`."""
        later = (asked for number, asked in self.in_flight.items() if number > after)
        entries = (asked.get(assignment.partition) for asked in later)
        return any(entry is not None and entry[0] is assignment for entry in entries)

    def _match(self, event: CommitEnded) -> int | None:
        if event.number is not None:
            return event.number if event.number in self.in_flight else None
        matches = (number for number, asked in self.in_flight.items() if asked.keys() == event.errors.keys())
        return next(matches, next(iter(self.in_flight), None))

    def _position(self, assignment: Assignment) -> Position:
        """Make up what to store: everything below is settled, and the carryover says what is settled above."""
        tracker, epochs = assignment.tracker, assignment.leader_epochs
        committable = tracker.committable
        metadata = ""
        if self._has_carryover:
            runs = epochs.split(tracker.settled_ahead())
            if assignment.carryover:
                runs = chain(runs, assignment.carryover.beyond(tracker.position))
            metadata = encode(runs, committable=committable, topic_id=assignment.topic_id)
        epochs.forget(committable)
        return Position(committable, epochs.at(committable - 1), metadata)
