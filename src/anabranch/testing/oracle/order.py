"""Checkers about keys: the records of a key run one after another, in log order, none left out.

Order is judged per lane (partition, ordering key as it was sent, step; see `facts`) and within a session, because a
session is what promises it:

- A session's first call in a lane may come only when all earlier records of the key are settled, by anyone. An
  earlier record that was not even begun was *skipped*; one that another session had begun and not settled had to be
  repeated, so the replay is not a suffix of the key: *reordered*.
- After that each call is for the same record again (a retry, a child) or for the next one. The next one may begin when
  the last call was done, or its record settled. Records between two calls must have been settled by this very session
  (filtered out, dead in an earlier step); if others had settled them, the replay has a gap: *reordered*.
- Going back within a session is *reordered*; so is a first call, by anyone, for a record behind one begun
  before, unless it had been settled (it died in an earlier step, and lives in the replay).

A swap of two records therefore counts twice: the later one skipped the earlier, and the earlier came late.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from anabranch.testing.oracle.facts import NEVER, Call, Facts, PartitionFacts, Session
from anabranch.testing.oracle.finding import Finding, Violation, breach, finding

Rule = Literal["skipped", "reordered"]


def skipped(facts: Facts) -> Finding:
    """Count calls and settlements that came while an earlier record of their key had been touched by no one."""
    return finding("skipped", (*_lane_breaches(facts, "skipped"), *_settled_ahead(facts)))


def reordered(facts: Facts) -> Finding:
    """Count calls out of log order, replays that are not a suffix, and records out of sending order in the log."""
    return finding("reordered", (*_lane_breaches(facts, "reordered"), *_sent_out_of_order(facts)))


def overlapping(facts: Facts) -> Finding:
    """Count calls that began while another one of their lane was running."""
    return finding("overlapping", _overlaps(facts))


def _lane_breaches(facts: Facts, rule: Rule) -> Iterator[Violation]:
    for partition in facts.partitions.values():
        for lane in partition.ordered_lanes():
            walk = _Walk(partition, lane.step, lane.offsets)
            for call in lane.calls:
                yield from (violation for broken, violation in walk.step_to(call) if broken == rule)


@dataclass(slots=True)
class _Walk:
    """The calls of one lane, followed in the order of their beginning. Records go by their index within the key."""

    partition: PartitionFacts
    step: str
    offsets: list[int]
    settled_below: int = 0
    begun: set[int] = field(default_factory=set)
    highest: int = -1
    last: dict[Session, Call] = field(default_factory=dict)

    def step_to(self, call: Call) -> Iterator[tuple[Rule, Violation]]:
        """Follow one call; tell what it breaks."""
        here = bisect_left(self.offsets, call.offset)
        before = self.last.get(call.session)
        if before is None:
            yield from self._entered(call, here)
        elif before.offset != call.offset:
            yield from self._moved(call, here, before)
        forward = before is None or before.offset < call.offset
        if forward and here < self.highest and here not in self.begun and not self._settled(here, call.begun_at):
            ahead = self.offsets[self.highest]
            yield "reordered", self._tell(call, ahead, f"for the first time, after offset {ahead} had been begun")
        self.begun.add(here)
        self.highest = self.highest if call.session.late else max(self.highest, here)
        self.last[call.session] = call

    def _entered(self, call: Call, here: int) -> Iterator[tuple[Rule, Violation]]:
        while self.settled_below < here and self._settled(self.settled_below, call.begun_at):
            self.settled_below += 1
        for index in range(self.settled_below, here):
            if self._settled(index, call.begun_at):
                continue
            missed = self.offsets[index]
            if index in self.begun:
                told = f"as its first of the key, though offset {missed} was begun before, not settled and not repeated"
                yield "reordered", self._tell(call, missed, told)
            else:
                yield "skipped", self._tell(call, missed, f"though no one had begun or settled offset {missed}")
            return

    def _moved(self, call: Call, here: int, before: Call) -> Iterator[tuple[Rule, Violation]]:
        there = bisect_left(self.offsets, before.offset)
        if here < there:
            yield "reordered", self._tell(call, before.offset, f"after offset {before.offset} in the same epoch")
            return
        if before.outcome == "failed" and before.ended_at < call.begun_at and not self._settled(there, call.begun_at):
            told = f"though the last call for offset {before.offset} had failed and it was not settled"
            yield "reordered", self._tell(call, before.offset, told)
        for index in range(there + 1, here):
            if self._settled_by(call.session, index, call.begun_at):
                continue
            missed = self.offsets[index]
            if index in self.begun or self._settled(index, call.begun_at):
                told = f"after offset {before.offset} and left out {missed}, so its replay is not a suffix"
                yield "reordered", self._tell(call, missed, told)
            else:
                yield "skipped", self._tell(call, missed, f"though no one had begun or settled offset {missed}")
            return

    def _settled(self, index: int, at: int) -> bool:
        return self.partition.settled_at(self.offsets[index]) < at

    def _settled_by(self, session: Session, index: int, at: int) -> bool:
        settlements = self.partition.settlements.get(self.offsets[index], ())
        return any(settlement.session is session and settlement.at < at for settlement in settlements)

    def _tell(self, call: Call, other: int, told: str) -> Violation:
        sentence = f"{call.session} began offset {call.offset} in step {self.step!r} {told}"
        return breach(self.partition, call.begun_at, (call.offset, other), sentence, late=call.session.late, lane=True)


def _settled_ahead(facts: Facts) -> Iterator[Violation]:
    """Find handled records before which one of their key had not been touched: pipelines without a step have no calls.

    What was filtered out or found dead on arrival may settle ahead of records that still wait in their lane.
    """
    for partition in facts.partitions.values():
        touched: dict[int, int] = {}
        for call in chain.from_iterable(partition.lanes.values()):
            touched[call.offset] = min(call.begun_at, touched.get(call.offset, NEVER))
        if touched.keys() >= partition.settlements.keys():
            continue  # each record had calls, which are judged by themselves
        for offsets in partition.offsets_by_key().values():
            yield from _settled_ahead_in(partition, offsets, touched)


def _settled_ahead_in(partition: PartitionFacts, offsets: list[int], called: dict[int, int]) -> Iterator[Violation]:
    latest, latest_offset = -1, -1  # the earlier record that was touched last
    for offset in offsets:
        at = partition.settled_at(offset)
        if at < latest and offset not in called and partition.settlements[offset][0].how == "handled":
            session = partition.settlements[offset][0].session
            sentence = f"{session} settled offset {offset} before anyone touched {latest_offset}"
            yield breach(partition, at, (offset, latest_offset), sentence, late=session.late)
        touched_at = min(at, called.get(offset, NEVER))
        if touched_at > latest:
            latest, latest_offset = touched_at, offset


def _sent_out_of_order(facts: Facts) -> Iterator[Violation]:
    for partition in facts.partitions.values():
        highest: dict[bytes, tuple[int, int]] = {}
        for offset in sorted(partition.sent):
            shipment = partition.sent[offset]
            if shipment.key is None or shipment.sequence is None:
                continue
            sequence, ahead = highest.get(shipment.key, (-1, -1))
            if shipment.sequence < sequence:
                told = f"number {sequence} of the key at {ahead}, before {shipment.sequence} at {offset}"
                yield breach(partition, shipment.at, (offset, ahead), f"the log holds {told}")
            else:
                highest[shipment.key] = (shipment.sequence, offset)


def _overlaps(facts: Facts) -> Iterator[Violation]:
    for partition in facts.partitions.values():
        for lane in partition.ordered_lanes():
            yield from _overlaps_in(partition, lane.step, lane.calls)


def _overlaps_in(partition: PartitionFacts, step: str, calls: list[Call]) -> Iterator[Violation]:
    longest: dict[bool, Call] = {}  # the call that runs longest, of members in time and of late ones
    for call in calls:
        late = call.session.late
        running = [other for other in longest.values() if call.begun_at < other.ended_at]
        if running:
            other = min(running, key=lambda other: other.session.late)
            told = f"in step {step!r} while {other.session} ran {other.offset}"
            sentence = f"{call.session} began offset {call.offset} {told}"
            apart = late or other.session.late
            yield breach(partition, call.begun_at, (call.offset, other.offset), sentence, late=apart, lane=True)
        if late not in longest or call.ended_at > longest[late].ended_at:
            longest[late] = call
