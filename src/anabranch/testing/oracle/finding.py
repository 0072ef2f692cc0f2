"""What a checker says: how often its rule was broken, and the first time told so that a person can follow it."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.core.history import Committed, Event, Sent
from anabranch.testing.history import Batch, History
from anabranch.testing.oracle.facts import PartitionFacts

EVENTS_BEFORE_MAX = 6
EVENTS_AFTER_MAX = 3
KEY_CHARACTERS_MAX = 40


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach of one rule: where in the history, about which records, and a sentence."""

    at: int
    topic: str
    partition: int | None
    offsets: tuple[int, ...]
    key: bytes | None
    sentence: str
    late: bool = False
    """By a member that was frozen or cut off: counted apart, fails nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one checker."""

    checker: str
    count: int
    first: Violation | None = None
    late: int = 0


def finding(checker: str, violations: Iterable[Violation]) -> Finding:
    """Count violations and keep the first by its place in the history."""
    count = late = 0
    first: Violation | None = None
    for violation in violations:
        if violation.late:
            late += 1
            continue
        count += 1
        if first is None or violation.at < first.at:
            first = violation
    return Finding(checker, count, first, late)


def breach(
    partition: PartitionFacts,
    at: int,
    offsets: tuple[int, ...],
    sentence: str,
    *,
    late: bool = False,
    lane: bool = False,
) -> Violation:
    """Make a violation that is about records of one partition; with `lane`, about all that happens to their key."""
    key = partition.keys.get(offsets[0]) if offsets else None
    told = f"{partition} key {_shown(key)}: {sentence}" if key is not None else f"{partition}: {sentence}"
    return Violation(at, partition.topic, partition.partition, offsets, key if lane else None, told, late)


def excerpts(history: History, violations: Sequence[Violation | None]) -> tuple[tuple[str, ...], ...]:
    """Tell the few events around each violation that are about the same records or key. Reads the history once."""
    collectors = [_Excerpt(violation) if violation else None for violation in violations]
    by_partition: dict[tuple[str, int | None], list[_Excerpt]] = defaultdict(list)
    for collector in filter(None, collectors):
        by_partition[collector.violation.topic, collector.violation.partition].append(collector)
    if by_partition:
        _collect(history, by_partition)
    return tuple((*collector.before, *collector.after) if collector else () for collector in collectors)


def _collect(history: History, by_partition: Mapping[tuple[str, int | None], Sequence["_Excerpt"]]) -> None:
    at = 0
    started_ns: int | None = None
    for batch in history:
        started_ns = batch.time_ns if started_ns is None else started_ns
        for event in batch.events:
            for collector in by_partition.get((event.topic, event.partition), ()):
                collector.take(at, event, batch, started_ns)
            at += 1


class _Excerpt:
    """The last lines up to one violation and the first ones after it."""

    def __init__(self, violation: Violation) -> None:
        self.violation = violation
        self.before: deque[str] = deque(maxlen=EVENTS_BEFORE_MAX)
        self.after: list[str] = []

    def take(self, at: int, event: Event, batch: Batch, started_ns: int) -> None:
        if at == self.violation.at:
            self.before.append(f">>> {_told(event, batch, started_ns)}")
        elif len(self.after) < EVENTS_AFTER_MAX and _concerns(event, self.violation):
            lines = self.before if at < self.violation.at else self.after
            lines.append(f"    {_told(event, batch, started_ns)}")


def _concerns(event: Event, violation: Violation) -> bool:
    if isinstance(event, Committed):
        return not violation.offsets
    if event.offset in violation.offsets:
        return True
    key = getattr(event, "key", None)
    return key is not None and key == violation.key


def _told(event: Event, batch: Batch, started_ns: int) -> str:
    time_s = (batch.time_ns - started_ns) / 1e9
    fields = event._asdict()
    member = fields.pop("member", batch.process.member)
    where = f"{fields.pop('topic')}/{fields.pop('partition')}"
    told = " ".join(f"{name}={_shown(value)}" for name, value in fields.items() if value is not None)
    name = "sent (unacknowledged)" if isinstance(event, Sent) and event.offset is None else type(event).__name__.lower()
    return f"+{time_s:.6f} s {member} (pid {batch.process.pid}) {name} {where} {told}"


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, bytes) else str(value)
    return text if len(text) <= KEY_CHARACTERS_MAX else text[: KEY_CHARACTERS_MAX - 1] + "…"
