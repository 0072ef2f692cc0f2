"""The scripted source: what the consumer's thread does for one member, with the delays that threads have.

Between it and the plane everything goes in order, each way for itself, and takes up to the scenario's latency: records
are on their way when the plane says pause, a commit is on its way when the partition is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from anabranch.control.effects import Commit, Pause, Position, Released, Resume
from anabranch.control.events import Assigned, CommitEnded, Fetched, HighWatermarks, Lost, Revoked, Start
from anabranch.core.history import Committed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from anabranch.control.events import Event
    from anabranch.core.work import TopicPartition
    from anabranch.testing.simulation.member import Member

TOPIC_ID = "8pZJ3wVzQ0S1u0qkq5mB2g"
POLL_S = 0.003
RELEASE_S_MAX = 60.0
"""A revoke that is not released by then, far beyond any grace, is a stall."""


@dataclass(slots=True)
class Place:
    """Where a partition is being read."""

    position: int
    is_paused: bool = False
    is_known: bool = False
    """Whether the plane has been told that the partition is ours: a commit that comes before is of an older epoch."""


class _Sent(NamedTuple):
    """A commit on its way."""

    commit: Commit
    membership: int
    in_revoke: bool
    """It was made inside the revoke, where the client waits for the answer."""


class ScriptedSource:
    """The consumer of one member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._world = member.world
        self.places: dict[TopicPartition, Place] = {}
        self._revoking: set[TopicPartition] = set()
        self._when_released: Callable[[], None] | None = None
        self._held_back: list[Callable[[], None]] = []
        """Answers to commits from before the revoke: the client gives them out when polled, in a revoke it is not."""
        self._is_polling = False
        self._in_order: dict[str, float] = {}

    @property
    def is_revoking(self) -> bool:
        """Whether it is in a revoke, where nothing is fetched."""
        return self._when_released is not None

    # What the group does to it

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin to read partitions where the group has committed, or at the start of the log."""
        starts = {}
        for partition in partitions:
            log = self._world.logs[partition]
            position, metadata = self._member.group.committed.setdefault(partition, (log.start, ""))
            self.places[partition] = Place(position)
            if self._world.random.random() < self._world.scenario.faults.metadata_damaged:
                metadata = self._world.random.choice(["hello", metadata[:-3], metadata.replace(":1:", ":2:")])
            starts[partition] = Start(position, metadata, TOPIC_ID, log.start, log.end_now)
        places = [self.places[partition] for partition in partitions]

        def know() -> None:
            for place in places:
                place.is_known = True

        self._tell(Assigned(starts), know)
        self.wake()

    def revoke(self, partitions: Sequence[TopicPartition], then: Callable[[], None]) -> None:
        """Ask the plane to release partitions, and go on when it has."""
        self._revoking = set(partitions)
        self._when_released = then
        self._tell(Revoked(partitions, self._world.clock.now + self._world.scenario.grace_s))
        self._member.later(RELEASE_S_MAX, lambda: self._check_released(then))

    def lose(self, then: Callable[[], None]) -> None:
        """Tell the plane that all partitions are lost, and go on when it knows."""
        partitions = self._drop_all()
        self._tell(Lost(partitions), then)

    # What the plane wants

    def do(self, effect: Commit | Pause | Resume | Released) -> None:
        """Take an effect when it gets here."""
        self._later_in_order("down", lambda: self._do(effect))

    def wake(self) -> None:
        """Fetch soon, if there is something."""
        if not self._is_polling:
            self._is_polling = True
            self._member.later(self._world.random.uniform(0, POLL_S), self._poll)

    def _do(self, effect: Commit | Pause | Resume | Released) -> None:
        match effect:
            case Commit():
                self._commit(effect)
            case Released():
                self._released(effect.partitions)
            case Pause() | Resume():
                for partition in effect.partitions:
                    if partition in self.places:
                        self.places[partition].is_paused = isinstance(effect, Pause)
                self.wake()

    def _poll(self) -> None:
        self._is_polling = False
        if self.is_revoking:
            return
        world = self._world
        for partition, place in self.places.items():
            if place.is_paused:
                continue
            records, position = world.logs[partition].fetch(
                place.position, world.scenario.fetch_records_max, world.random
            )
            if position > place.position:
                place.position = position
                keys = [world.key_of(record) for record in records] if world.scenario.rekeyed else None
                self._tell(Fetched(partition, records, position, keys))
                self._tell(HighWatermarks({partition: world.logs[partition].end_now}))
                self.wake()

    def _released(self, partitions: Sequence[TopicPartition]) -> None:
        then = self._when_released
        self._revoking.difference_update(partitions)
        if then is not None and not self._revoking:
            self._end_revoke()
            for partition in partitions:
                self.places.pop(partition, None)
            then()
            self.wake()

    def _check_released(self, then: Callable[[], None]) -> None:
        if self._when_released is then:
            self._world.violation(f"{self._member.name} has not released {sorted(self._revoking)}")

    # Commits

    def _commit(self, commit: Commit) -> None:
        ours = {
            partition: position
            for partition, position in commit.positions.items()
            if partition in self.places and self.places[partition].is_known
        }
        sent = _Sent(commit, self._member.membership, self.is_revoking)
        self._later_in_order("wire", lambda: self._store(sent, ours), self._world.scenario.latency_s * 3)

    def _store(self, sent: _Sent, ours: Mapping[TopicPartition, Position]) -> None:
        """Let the coordinator decide. This happens at the broker: the member may have died meanwhile."""
        faults, chance = self._world.scenario.faults, self._world.random.random
        group = self._member.group
        errors: dict[TopicPartition, str | None] = dict.fromkeys(sent.commit.positions, "it is not ours any more")
        fenced = not group.is_valid(sent.membership)
        for partition, position in ours.items():
            if fenced:
                errors[partition] = "the member is not known"
            elif chance() < faults.commit_refused:
                errors[partition] = "a rebalance is in progress"
            elif chance() < faults.commit_timed_out:
                errors[partition] = "it timed out"
            else:
                group.committed[partition] = (position.position, position.metadata + "\0" * (chance() < 0.5))
                errors[partition] = "it timed out" if chance() < faults.commit_answer_lost else None
        self._later_in_order("up", lambda: self._answered(sent, errors, fenced))

    def _answered(self, sent: _Sent, errors: Mapping[TopicPartition, str | None], fenced: bool) -> None:
        member, positions = self._member, sent.commit.positions
        stored = [partition for partition, error in errors.items() if error is None]
        if stored:
            member.history.record([Committed(member.name, "billing", *one, positions[one].position) for one in stored])
        if self.is_revoking and not sent.in_revoke:
            self._held_back.append(lambda: self._hand_out(sent, errors, fenced))
        else:
            self._hand_out(sent, errors, fenced)

    def _hand_out(self, sent: _Sent, errors: Mapping[TopicPartition, str | None], fenced: bool) -> None:
        member = self._member
        is_fenced_now = fenced and sent.membership == member.membership
        if is_fenced_now:
            self._drop_all()
        member.step(CommitEnded(errors, fenced=is_fenced_now, number=sent.commit.number))
        if is_fenced_now:
            member.group.has_learned(member)

    def _drop_all(self) -> list[TopicPartition]:
        partitions = list(self.places)
        self.places = {}
        self._revoking = set()
        self._end_revoke()
        return partitions

    def _end_revoke(self) -> None:
        self._when_released = None
        held_back, self._held_back = self._held_back, []
        for answer in held_back:
            self._member.later(0.0, answer)

    # Delays

    def _tell(self, event: Event, then: Callable[[], None] | None = None) -> None:
        def tell() -> None:
            self._member.step(event)
            if then is not None:
                then()

        self._later_in_order("up", tell)

    def _later_in_order(self, way: str, action: Callable[[], None], latency_s: float | None = None) -> None:
        """Do something after a delay, but after all that was sent the same way before."""
        clock = self._world.clock
        latency_s = self._world.scenario.latency_s if latency_s is None else latency_s
        due = max(self._in_order.get(way, 0.0), clock.now + self._world.random.uniform(0, latency_s))
        self._in_order[way] = due
        if way == "wire":
            clock.at(due, action)
        else:
            self._member.at(due, action)
