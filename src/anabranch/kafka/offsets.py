"""Where reading of a partition begins: decided here from what the broker was asked, and never by the client library.

A committed position always wins; the rule of `read(start=…)` says where a partition without one begins. Awkward cases:

- `latest` holds only for partitions that existed when the group first started (KIP-842): a partition that was added
  later begins at its log_start, or what was written to it before anyone noticed it would be skipped. The group has
  started when some partition of the topic has a commit. Members that start together would take each other's first
  commits for that, so commits carry a note of how many partitions there were then, and who is below that number is not
  new. When every note has made room for a carryover, the answer is log_start: repeats rather than a loss.
- A topic that was deleted and made again has nothing to do with what was committed for the old one: its id differs from
  the one in the commit's metadata, and it begins at log_start.
  A commit without a carryover has a note with the id in its place.
- Below log_start: retention passed the position. What lies between is counted as lost and said. Above log_end: the log
  was truncated or made anew; going on silently would skip what is written there next, so it halts unless told not to.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from anabranch.core.errors import UsageError
from anabranch.core.work import TopicPartition

if TYPE_CHECKING:
    from anabranch.kafka.settings import SourceSettings

_NOTE: Final = re.compile(r"anabranch-note:1:partitions=(\d{1,9}):topic_id=(\S{0,64})")


# The library has no code of its own for this: `Partition log truncation detected at …: broker end offset is 50 (…)`.
_TRUNCATED: Final = re.compile(r"truncation detected.*broker end offset is (\d+)")


class Note(NamedTuple):
    """What stands in the metadata of a commit that carries nothing over."""

    partitions: int
    """How many partitions the topic had when the group first started; 0 when that is not known."""
    topic_id: str

    def __str__(self) -> str:
        return f"anabranch-note:1:partitions={self.partitions}:topic_id={self.topic_id}"


@dataclass(frozen=True, slots=True)
class Rule:
    """Where partitions begin that have no commit."""

    kind: Literal["earliest", "latest", "time", "offsets"]
    time_ms: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """What the broker says about one partition."""

    topic_id: str
    log_start: int
    log_end: int
    partitions: int = 0
    """How many the topic has."""
    committed: int | None = None
    metadata: str = ""
    """What control gave with the commit: perhaps a carryover."""
    committed_topic_id: str = ""
    """The topic's id when it was committed; empty when that is not known."""
    leader_epoch: int = -1
    at_time: int | None = None
    """The first offset with the rule's time or later; None when there is none."""
    group_started: bool = False
    """Whether the group has a commit for any partition of the topic."""
    partitions_at_start: int = 0
    """How many partitions the topic had when the group first started; 0 when that is not known."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Where one partition begins."""

    position: int
    metadata: str = ""
    """The commit's metadata, when it belongs to this position."""
    commit_first: bool = False
    """The position is new: store it before any record runs."""
    lost: int = 0
    """Offsets that retention removed unread."""
    notice: str | None = None
    refusal: str | None = None
    """Why reading must not begin; it names the fix."""


def parse_rule(start: Any) -> Rule:
    """Read what `read(start=…)` was given."""
    if start in ("committed", "earliest"):
        return Rule("earliest")
    if start == "latest":
        return Rule("latest")
    if isinstance(start, dt.datetime):
        moment = start if start.tzinfo is not None else start.astimezone()
        return Rule("time", time_ms=int(moment.timestamp() * 1000))
    if isinstance(start, int | float) and not isinstance(start, bool) and start >= 0:
        return Rule("time", time_ms=int(start * 1000))
    if isinstance(start, Mapping):
        return Rule("offsets", offsets={_partition(name): _offset(name, given) for name, given in start.items()})
    raise UsageError(
        f"start: given {start!r}, allowed is 'committed', 'earliest', 'latest', a datetime, seconds since 1970, "
        "or {(topic, partition): offset}"
    )


def read_note(metadata: str) -> Note | None:
    """Return the note that commit metadata is; None if it is something else."""
    matched = _NOTE.fullmatch(metadata)
    return Note(int(matched[1]), matched[2]) if matched else None


def note_for(found: Found) -> Note:
    """Return the note for commits of a partition."""
    return Note(found.partitions_at_start if found.group_started else found.partitions, found.topic_id)


def resolve(rule: Rule, partition: TopicPartition, found: Found, settings: SourceSettings) -> Resolution:
    """Decide where a newly assigned partition begins."""
    if found.committed is None:
        return _first(rule, partition, found, settings)
    if found.committed_topic_id and found.topic_id and found.committed_topic_id != found.topic_id:
        return Resolution(
            found.log_start,
            commit_first=True,
            notice=f"{partition}: the topic was deleted and made again since position {found.committed} was committed; "
            f"reading begins at {found.log_start}",
        )
    return within_log(partition, found.committed, found.metadata, found, settings)


def within_log(
    partition: TopicPartition, position: int, metadata: str, found: Found, settings: SourceSettings
) -> Resolution:
    """Hold a position against the bounds of the log."""
    if position < found.log_start:
        lost = found.log_start - position
        said = f"{partition}: retention removed {lost} offsets from {position} on before they were read"
        if settings.on_lost_to_retention == "halt":
            return Resolution(position, lost=lost, refusal=f'{said}; to go on, set on_lost_to_retention="go on"')
        return Resolution(found.log_start, metadata, lost=lost, notice=f"{said}; going on at {found.log_start}")
    if position > found.log_end:
        said = f"{partition}: position {position} lies beyond the end of the log, {found.log_end}"
        if settings.on_beyond_end == "halt":
            return Resolution(
                position,
                refusal=f"{said}: the log was truncated or made anew. If that was meant, begin anew with another group "
                'or with on_beyond_end="log_start" or "log_end"',
            )
        position = found.log_start if settings.on_beyond_end == "log_start" else found.log_end
        return Resolution(position, commit_first=True, notice=f"{said}; going on at {position}")
    return Resolution(position, metadata)


def truncated(partition: TopicPartition, position: int, end: int, settings: SourceSettings) -> Resolution:
    """Decide about a log that lost records below a position: other records have their offsets now, or will have."""
    said = f"{partition}: the log was cut back to {end}, below position {position}"
    if settings.on_beyond_end == "halt":
        return Resolution(
            position,
            refusal=f'{said}: what stands there now was not read. To read it, set on_beyond_end="log_end"',
        )
    return Resolution(end, commit_first=True, notice=f"{said}; going on at {end}")


def truncated_to(reason: str) -> int | None:
    """Return the end of what is left, when the client library complains that a log was truncated."""
    matched = _TRUNCATED.search(reason)
    return int(matched[1]) if matched else None


def _first(rule: Rule, partition: TopicPartition, found: Found, settings: SourceSettings) -> Resolution:
    position = found.log_start
    if rule.kind == "latest":
        known = not found.group_started or partition.partition < found.partitions_at_start
        position = found.log_end if known else found.log_start
    elif rule.kind == "time":
        position = found.log_end if found.at_time is None else found.at_time
    elif rule.kind == "offsets":
        wanted = rule.offsets.get(partition, found.log_start)
        bounded = within_log(partition, wanted, "", found, settings)
        return Resolution(bounded.position, "", True, bounded.lost, bounded.notice, bounded.refusal)
    return Resolution(position, commit_first=True)


def _partition(name: Any) -> TopicPartition:
    try:
        topic, partition = name
    except (TypeError, ValueError):
        topic, partition = None, None
    if not isinstance(topic, str) or not isinstance(partition, int):
        raise UsageError(f"start: {name!r} is not a partition; allowed is {{(topic, partition): offset}}")
    return TopicPartition(topic, partition)


def _offset(name: Any, given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise UsageError(f"start: {name!r}: given {given!r}, allowed is an offset of 0 or more")
    return given
