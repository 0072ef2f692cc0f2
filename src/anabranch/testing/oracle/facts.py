"""A history, digested once: what was sent, called, settled and committed, per partition.

Every event has a place in the merged order, its number `at`; the checkers compare places and never clocks. The digest
keeps one small object per call and per settlement and drops the events, so memory follows the records, not the log.

Which records belong together is what the *sender* told: a call is filed under the key that its record was sent with,
whatever the run says about it. Only where nobody told of a sending is the run believed. A run that claims another order
than the sent one (by partition, by a key of its own) is held to that too: its claims are lanes as well.

A *session* is one epoch of one member in one process: as long as it lasts, its owner alone decides about the order. A
call that never ended is closed where its process was last heard of, or where the caller says it was killed.
"""

import sys
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from anabranch.core.history import Begun, Committed, Ended, Event, How, Outcome, Sent, Settled
from anabranch.testing.history import History, Process

NEVER = sys.maxsize
"""The place of what did not happen."""


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """One epoch of one member in one process. `late`: of a member that was frozen or cut off, counted apart."""

    process: Process
    member: str
    epoch: int
    late: bool

    def __str__(self) -> str:
        """Say who, for a report."""
        return f"{self.member} (pid {self.process.pid}, epoch {self.epoch})"


@dataclass(slots=True, eq=False)
class Call:
    """One call for one record in one step."""

    offset: int
    session: Session
    begun_at: int
    ended_at: int = NEVER
    outcome: Outcome | None = None


class Settlement(NamedTuple):
    """One `Settled` event."""

    at: int
    session: Session
    how: How


class Commit(NamedTuple):
    """One `Committed` event."""

    at: int
    member: str
    group: str
    position: int
    late: bool


class Shipment(NamedTuple):
    """One acknowledged `Sent` event."""

    at: int
    key: bytes | None
    sequence: int | None


Lane = tuple[bytes | None, str]
"""Ordering key and step: within a partition, what may never run twice at once."""

_begun_at = attrgetter("begun_at")


class OrderedLane(NamedTuple):
    """A lane to be judged: the step, all records of its key in log order, and the calls as they began."""

    step: str
    offsets: list[int]
    calls: list[Call]


@dataclass(slots=True, eq=False)
class PartitionFacts:
    """All that is known about one partition."""

    topic: str
    partition: int
    sent: dict[int, Shipment] = field(default_factory=dict)
    collisions: list[tuple[int, int]] = field(default_factory=list)
    keys: dict[int, bytes | None] = field(default_factory=dict)
    """The ordering key of each record: as it was sent, or, where that is not known, as the run told it."""
    lanes: dict[Lane, list[Call]] = field(default_factory=lambda: defaultdict(list))
    """The calls of each key and step, in the order of their beginning."""
    claims: dict[Lane, list[Call]] = field(default_factory=dict)
    """The same by keys that the run told otherwise than they were sent."""
    settlements: dict[int, list[Settlement]] = field(default_factory=lambda: defaultdict(list))
    commits: list[Commit] = field(default_factory=list)

    def __str__(self) -> str:
        """`topic/partition`."""
        return f"{self.topic}/{self.partition}"

    def settled_at(self, offset: int) -> int:
        """Give the place where a record was first settled, or NEVER."""
        settlements = self.settlements.get(offset)
        return settlements[0].at if settlements else NEVER

    def offsets_by_key(self) -> dict[bytes, list[int]]:
        """Give the known records of each ordering key, in log order. Records without a key have no order."""
        offsets: dict[bytes, list[int]] = defaultdict(list)
        for offset in sorted(self.keys):
            key = self.keys[offset]
            if key is not None:
                offsets[key].append(offset)
        return offsets

    def ordered_lanes(self) -> Iterator[OrderedLane]:
        """Give every lane that has an order: those of the sent keys, then those that the run claims."""
        offsets = self.offsets_by_key()
        for (key, step), calls in self.lanes.items():
            if key is not None:
                yield OrderedLane(step, offsets[key], calls)
        claimed: dict[bytes | None, set[int]] = defaultdict(set)
        for (key, _), calls in self.claims.items():
            claimed[key].update(call.offset for call in calls)
        for (key, step), calls in self.claims.items():
            yield OrderedLane(step, sorted(claimed[key]), calls)

    def file_by_sent_key(self) -> None:
        """Move calls from the keys that the run told to those that their records were sent with."""
        for offset, shipment in self.sent.items():
            self.keys[offset] = shipment.key
        told = self.lanes
        wrong = {key for (key, _), calls in told.items() if any(self.keys[call.offset] != key for call in calls)}
        if not wrong:
            return
        self.lanes = defaultdict(list)
        for (_, step), calls in told.items():
            for call in calls:
                self.lanes[self.keys[call.offset], step].append(call)
        for calls in self.lanes.values():
            calls.sort(key=_begun_at)
        self.claims = {lane: calls for lane, calls in told.items() if lane[0] is not None and lane[0] in wrong}


@dataclass(slots=True, eq=False)
class Facts:
    """The digest of a history; made by `digest`, read by the checkers."""

    partitions: dict[tuple[str, int], PartitionFacts]
    unacknowledged: Counter[str]
    strays: list[tuple[int, Ended]]
    end: int
    """The place after the last event."""
    torn: int

    @property
    def records(self) -> int:
        """How many records were acknowledged."""
        return sum(len(partition.sent) + len(partition.collisions) for partition in self.partitions.values())


def digest(
    history: History,
    *,
    frozen: Collection[str] = (),
    killed: Mapping[int, int] | None = None,
    starts: Mapping[tuple[str, int], int] | None = None,
) -> Facts:
    """Read a history once.

    `frozen` names members (or processes as `member-pid`) whose calls are counted apart. `killed` gives the time of
    death by process number, CLOCK_MONOTONIC in ns. `starts` gives the first offset that the group was to read, by topic
    and partition, where that is not the first one sent (`latest`, retention).
    """
    digester = _Digester(history, frozenset(frozen), starts or {})
    for batch in history:
        for event in batch.events:
            digester.take(event, batch.process)
        digester.stamp(batch.time_ns, batch.process, len(batch.events))
    return digester.finish(killed or {})


class _Digester:
    """The running state of one digest."""

    def __init__(self, history: History, frozen: frozenset[str], starts: Mapping[tuple[str, int], int]) -> None:
        self._history = history
        self._frozen = frozen
        self._starts = starts
        self._at = 0
        self._times_ns = array("q")
        self._partitions: dict[tuple[str, int], PartitionFacts] = {}
        self._sessions: dict[tuple[Process, str, int], Session] = {}
        self._open: dict[tuple[Session, str, int, int, str, int], Call] = {}
        self._abandoned: list[Call] = []
        self._heard: dict[Process, int] = {}
        self._unacknowledged: Counter[str] = Counter()
        self._strays: list[tuple[int, Ended]] = []

    def stamp(self, time_ns: int, process: Process, count: int) -> None:
        """Note the time of the last `count` events and that their process was alive."""
        self._times_ns.extend([time_ns] * count)
        self._heard[process] = self._at - 1

    def take(self, event: Event, process: Process) -> None:
        """Add one event at the next place."""
        match event:
            case Begun():
                self._begun(event, process)
            case Ended():
                self._ended(event, process)
            case Settled():
                partition = self._partition(event.topic, event.partition)
                session = self._session(process, event.member, event.epoch)
                partition.settlements[event.offset].append(Settlement(self._at, session, event.how))
            case Sent():
                self._sent(event)
            case Committed():
                late = self._late(process, event.member)
                commit = Commit(self._at, event.member, event.group, event.position, late)
                self._partition(event.topic, event.partition).commits.append(commit)
        self._at += 1

    def finish(self, killed: Mapping[int, int]) -> Facts:
        """Close what is open and give the facts."""
        for call in [*self._open.values(), *self._abandoned]:
            process = call.session.process
            died_ns = killed.get(process.pid)
            heard = self._heard[process]
            call.ended_at = heard if died_ns is None else max(heard, bisect_right(self._times_ns, died_ns))
        for partition in self._partitions.values():
            partition.file_by_sent_key()
        return Facts(self._partitions, self._unacknowledged, self._strays, self._at, self._history.torn)

    def _sent(self, event: Sent) -> None:
        if event.offset is None or event.partition is None:
            self._unacknowledged[event.topic] += 1
            return
        if event.offset < self._starts.get((event.topic, event.partition), 0):
            return
        partition = self._partition(event.topic, event.partition)
        if event.offset in partition.sent:
            partition.collisions.append((self._at, event.offset))
        else:
            partition.sent[event.offset] = Shipment(self._at, event.key, event.sequence)

    def _begun(self, event: Begun, process: Process) -> None:
        session = self._session(process, event.member, event.epoch)
        partition = self._partition(event.topic, event.partition)
        call = Call(event.offset, session, self._at)
        identity = (session, event.topic, event.partition, event.offset, event.step, event.attempt)
        if (before := self._open.get(identity)) is not None:
            self._abandoned.append(before)
        self._open[identity] = call
        partition.lanes[event.key, event.step].append(call)
        partition.keys[event.offset] = event.key

    def _ended(self, event: Ended, process: Process) -> None:
        session = self._session(process, event.member, event.epoch)
        identity = (session, event.topic, event.partition, event.offset, event.step, event.attempt)
        call = self._open.pop(identity, None)
        if call is None:
            self._strays.append((self._at, event))
        else:
            call.ended_at = self._at
            call.outcome = event.outcome

    def _partition(self, topic: str, number: int) -> PartitionFacts:
        partition = self._partitions.get((topic, number))
        if partition is None:
            partition = self._partitions[topic, number] = PartitionFacts(topic, number)
        return partition

    def _session(self, process: Process, member: str, epoch: int) -> Session:
        session = self._sessions.get((process, member, epoch))
        if session is None:
            session = Session(process, member, epoch, self._late(process, member))
            self._sessions[process, member, epoch] = session
        return session

    def _late(self, process: Process, member: str) -> bool:
        return not self._frozen.isdisjoint((member, process.name))
