"""Checkers about records: each one that was acknowledged is settled, at least once, and nothing else is."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from anabranch.testing.oracle.facts import Call, Facts, Session
from anabranch.testing.oracle.finding import Finding, Violation, breach, finding


def lost(facts: Facts) -> Finding:
    """Count records that were acknowledged and never settled, or settled as handled though their last call had failed
    or still ran, or whose offset was given to another record too.
    """
    return finding("lost", (*_lost(facts), *_not_handled(facts)))


def duplicated(facts: Facts) -> Finding:
    """Count settlements beyond the first of each record. Repeats are allowed; they are told honestly."""
    return finding("duplicated", _duplicated(facts))


def unknown(facts: Facts) -> Finding:
    """Count what was settled though it was never sent, and calls that ended though they never began.

    A record that was sent and not acknowledged may be in the log all the same, at an offset that its sender never
    learned: a topic may settle as many strangers as it has such records.
    """
    return finding("unknown", _unknown(facts))


def _lost(facts: Facts) -> Iterator[Violation]:
    for partition in facts.partitions.values():
        for at, offset in partition.collisions:
            yield breach(partition, at, (offset,), f"offset {offset} was acknowledged for two records")
        for offset in partition.sent:
            if offset not in partition.settlements:
                sentence = f"offset {offset} was acknowledged and never settled"
                yield breach(partition, facts.end, (offset,), sentence)


def _not_handled(facts: Facts) -> Iterator[Violation]:
    """Find failures that were taken for success: a retry that was dropped leaves no other trace."""
    for partition in facts.partitions.values():
        claims = {
            (offset, settlement.session): settlement.at
            for offset, settlements in partition.settlements.items()
            for settlement in settlements
            if settlement.how == "handled"
        }
        last: dict[tuple[int, Session], Call] = {}
        for call in chain.from_iterable(partition.lanes.values()):
            place = (call.offset, call.session)
            if call.begun_at < claims.get(place, -1) and (place not in last or call.begun_at > last[place].begun_at):
                last[place] = call
        for (offset, session), call in last.items():
            at = claims[offset, session]
            if call.outcome == "failed" or call.ended_at > at:
                how = "had failed" if call.ended_at < at else "still ran"
                sentence = f"{session} settled offset {offset} as handled though its last call {how}"
                yield breach(partition, at, (offset,), sentence)


def _duplicated(facts: Facts) -> Iterator[Violation]:
    for partition in facts.partitions.values():
        for offset, settlements in partition.settlements.items():
            first = settlements[0]
            for again in settlements[1:]:
                sentence = f"offset {offset} was settled by {first.session} and again by {again.session}"
                yield breach(partition, again.at, (offset,), sentence, late=again.session.late)


def _unknown(facts: Facts) -> Iterator[Violation]:
    allowed = Counter(facts.unacknowledged)
    for partition in facts.partitions.values():
        for offset, settlements in partition.settlements.items():
            if offset in partition.sent:
                continue
            if allowed[partition.topic] > 0:
                allowed[partition.topic] -= 1
                continue
            sentence = f"{settlements[0].session} settled offset {offset}, which was never sent"
            yield breach(partition, settlements[0].at, (offset,), sentence)
    for at, event in facts.strays:
        sentence = (
            f"{event.topic}/{event.partition}: {event.member} ended a call for {event.offset} that it never began"
        )
        yield Violation(at, event.topic, event.partition, (event.offset,), event.key, sentence)
