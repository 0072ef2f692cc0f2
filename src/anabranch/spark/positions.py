"""How far a query has read, as Spark stores it in a checkpoint, and how far it may go next. Pure.

Positions are exclusive, per topic and partition, with the id that the topic had. Two rules carry the rest:

- *A partition is entered first and read from the next batch on.* A batch whose end has a partition that its start has
  not, reads nothing of it. So where reading begins is always stored before anything is read: a crash after `latest`
  loses nothing, a partition that is added begins at its log_start whoever asks, and a batch that is run again after a
  crash finds the same records. The price is an empty batch at the start of a query.
- *Nothing is known at first.* The initial offset is the same constant however often Spark asks for it (it asks twice,
  and once more after a crash in the first batch); what `startingOffsets` means is resolved when the first batch ends.

Equal positions have equal texts: Spark compares texts to see whether there is anything new. Positions go back only
when a log was truncated and the user allowed it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import Halted, UsageError
from anabranch.core.work import TopicPartition
from anabranch.kafka.extents import START_ANEW, Range, lost_sentence, made_again_sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch.kafka.extents import Seen, Topics

VERSION: Final = 1
EARLIEST: Final = -2  # as Spark's Kafka source writes them in startingOffsets
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class TopicPositions:
    """The positions in one topic."""

    id: str
    partitions: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Positions:
    """How far a query has read."""

    topics: Mapping[str, TopicPositions] = field(default_factory=dict)
    started: bool = True
    """Whether the start was resolved: what is seen for the first time after that begins at its log_start."""

    def stored(self) -> dict[str, Any]:
        """Return what Spark writes into the checkpoint."""
        if not self.started:
            return {"version": VERSION}
        return {
            "version": VERSION,
            "topics": {
                name: {"id": each.id, "positions": {str(number): at for number, at in sorted(each.partitions.items())}}
                for name, each in sorted(self.topics.items())
            },
        }

    def at(self, topic: str, partition: int) -> int | None:
        """Return a partition's position; None if it was not entered yet."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins: everywhere the same, or by partition. An offset, EARLIEST or LATEST."""

    everywhere: int = LATEST
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)


NOTHING_YET: Final = Positions(started=False)


def restored(stored: Mapping[str, Any] | str) -> Positions:
    """Read what a checkpoint has; refuse what another version or another source wrote."""
    try:
        found = json.loads(stored) if isinstance(stored, str) else stored
        version = found["version"]
        if version == VERSION:
            return _restored(found)
    except (KeyError, TypeError, ValueError, AttributeError):
        version = None
    if version is None:
        raise UsageError(f"the checkpoint was not written by this source: its offset is {stored!r}. {START_ANEW}")
    raise UsageError(
        f"the checkpoint was written by version {version!r} of this source, and version {VERSION} is read here: "
        f"run the query with the anabranch that wrote it. {START_ANEW}"
    )


def check_topics(positions: Positions, topics: Topics) -> None:
    """Raise UsageError unless the positions belong to the topics that are to be read."""
    strangers = [name for name in positions.topics if not topics.covers(name)]
    if strangers:
        raise UsageError(
            f"the checkpoint belongs to another query: it has positions of {', '.join(strangers)}, and {topics} is to "
            f"be read. {START_ANEW}"
        )


def check_ids(positions: Positions, seen: Seen) -> None:
    """Raise UsageError unless the topics are the ones that were read so far."""
    for name, each in positions.topics.items():
        found = seen.get(name)
        if found is None:
            raise UsageError(f"topic {name}, which the checkpoint has positions of, does not exist. {START_ANEW}")
        if each.id and found.id and each.id != found.id:
            raise UsageError(made_again_sentence(name))


def enter(positions: Positions, seen: Seen, start: Start) -> Positions:
    """Add what is not entered yet: at the start that was asked for, or at its log_start once the query has started."""
    wanted = start if not positions.started else Start(EARLIEST)
    topics = {}
    for name, found in seen.items():
        known = positions.topics[name] if name in positions.topics else TopicPositions(found.id, {})
        entered = {
            number: _begin(name, number, seen, wanted) for number in found.ends if number not in known.partitions
        }
        topics[name] = TopicPositions(known.id or found.id, {**known.partitions, **entered})
    return Positions({**positions.topics, **topics})


@dataclass(frozen=True, slots=True)
class Advance:
    """How far the next batch goes, and what is to be said about it."""

    positions: Positions
    notices: tuple[str, ...] = ()


def advance(positions: Positions, seen: Seen, rows_max: int | None, *, fail_on_data_loss: bool) -> Advance:
    """Go to the ends of what was entered, at most so many offsets. What retention removed is not counted as read."""
    begins: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    notices = []
    for name, each in positions.topics.items():
        found = seen[name]
        for number, position in each.partitions.items():
            partition = TopicPartition(name, number)
            end, log_start = found.ends.get(number, position), found.log_starts.get(number, 0)
            if position > end:
                notices.append(_truncated(partition, position, end, fail_on_data_loss=fail_on_data_loss))
            elif position < log_start:
                said = lost_sentence(name, number, position, log_start - position)
                if fail_on_data_loss:
                    raise Halted(f"{said}; to go on without them, set option failOnDataLoss to false")
                notices.append(f"{said}; going on at {log_start}")
            begins[partition] = min(max(position, log_start), end)
            ends[partition] = end
    if rows_max is not None:
        shares = share({each: ends[each] - begins[each] for each in ends}, rows_max, turn=sum(begins.values()))
        ends = {each: begins[each] + shares[each] for each in ends}
    topics = {
        name: TopicPositions(each.id, {number: ends[TopicPartition(name, number)] for number in each.partitions})
        for name, each in positions.topics.items()
    }
    return Advance(Positions(topics, positions.started), tuple(notices))


def share(waiting: Mapping[TopicPartition, int], rows_max: int, *, turn: int) -> dict[TopicPartition, int]:
    """Share out a number of rows: evenly, and what one does not need goes to the others.

    With fewer rows than partitions they get one each, a different few every time: `turn` changes as reading goes on.
    """
    hungry = [partition for partition in sorted(waiting) if waiting[partition] > 0]
    shares = dict.fromkeys(waiting, 0)
    if not hungry:
        return shares
    turn %= len(hungry)
    hungry = hungry[turn:] + hungry[:turn]
    if rows_max < len(hungry):
        return {**shares, **dict.fromkeys(hungry[:rows_max], 1)}
    left = rows_max
    for served, partition in enumerate(sorted(hungry, key=lambda each: waiting[each])):
        shares[partition] = min(waiting[partition], left // (len(hungry) - served))
        left -= shares[partition]
    return shares


def ranges(start: Positions, end: Positions) -> list[Range]:
    """Return what the batch between two offsets reads: nothing of what it only enters."""
    found = []
    for name, each in end.topics.items():
        for number, at in each.partitions.items():
            begin = start.at(name, number)
            if begin is not None and begin < at:
                found.append(Range(name, each.id, number, begin, at))
    return found


def check_ranges(wanted: Iterable[Range], seen: Seen) -> None:
    """Raise Halted if retention has removed some of what is to be read."""
    for each in wanted:
        log_start = seen[each.topic].log_starts.get(each.partition, each.start) if each.topic in seen else each.start
        if each.start < log_start:
            said = lost_sentence(each.topic, each.partition, each.start, min(log_start, each.end) - each.start)
            raise Halted(f"{said}; to go on without them, set option failOnDataLoss to false")


def lag(read: Positions, latest: Positions) -> int:
    """Return how many offsets lie between what was read and the ends; what was not entered counts from its begin."""
    total = 0
    for name, each in latest.topics.items():
        for number, end in each.partitions.items():
            position = read.at(name, number)
            total += 0 if position is None else max(0, end - position)
    return total


def removed(start: Positions, end: Positions, seen: Seen) -> dict[TopicPartition, int]:
    """Return how many offsets of the batch between two positions retention has removed already, where it has."""
    found = {}
    for each in ranges(start, end):
        log_start = seen[each.topic].log_starts.get(each.partition, each.start) if each.topic in seen else each.start
        if each.start < log_start:
            found[TopicPartition(each.topic, each.partition)] = min(log_start, each.end) - each.start
    return found


def beyond(positions: Positions, seen: Seen) -> bool:
    """Tell whether some position lies beyond the end of its log: the log was truncated, or is another one."""
    return any(
        at > seen[name].ends.get(number, at)
        for name, each in positions.topics.items()
        if name in seen
        for number, at in each.partitions.items()
    )


def ends_of(seen: Seen) -> Positions:
    """Return the positions at the ends of all that was seen."""
    return Positions({name: TopicPositions(each.id, each.ends) for name, each in seen.items()})


def _restored(found: Mapping[str, Any]) -> Positions:
    if "topics" not in found:
        return NOTHING_YET
    return Positions(
        {
            name: TopicPositions(str(each["id"]), {int(number): int(at) for number, at in each["positions"].items()})
            for name, each in found["topics"].items()
        }
    )


def _begin(topic: str, partition: int, seen: Seen, start: Start) -> int:
    low, high = seen[topic].log_starts[partition], seen[topic].ends[partition]
    wanted = start.partitions.get(TopicPartition(topic, partition), start.everywhere)
    if wanted == EARLIEST:
        return low
    if wanted == LATEST:
        return high
    if not low <= wanted <= high:
        raise UsageError(
            f"option startingOffsets: {topic}/{partition} has offsets from {low} to {high}, and {wanted} is given"
        )
    return wanted


def _truncated(partition: TopicPartition, position: int, end: int, *, fail_on_data_loss: bool) -> str:
    said = f"{partition}: position {position} lies beyond the end of the log, {end}: the log was truncated"
    if fail_on_data_loss:
        raise Halted(f"{said}. To go on at {end}, set option failOnDataLoss to false. {START_ANEW}")
    return f"{said}; going on at {end}"
