"""What must have come of the chat's messages, compared with what has: in the topics, and in the table.

Nothing here knows the pipeline: replies and dead letters are given as a plain client read them, rows as Spark SQL did.
What is found joins the oracle's verdict on the history, which the members recorded: three witnesses, one verdict.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
from chat import Reply, Sample

from anabranch.testing.oracle import Finding, Verdict, Violation

Place = tuple[int, int]
"""Partition and offset."""


class Found(NamedTuple):
    """A record that a plain client read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None]
    timestamp_ms: int = 0


class Audit:
    """What one witness says: how often each rule was broken, and the first time in a sentence."""

    def __init__(self, witness: str) -> None:
        self.witness = witness
        self.counts: Counter[str] = Counter()
        self.sentences: dict[str, str] = {}

    def note(self, rule: str, sentence: str, count: int = 1) -> None:
        """Count a breach of a rule."""
        self.counts[rule] += count
        self.sentences.setdefault(rule, sentence)

    def __repr__(self) -> str:
        return f"<Audit {self.witness}: {dict(self.counts)}>"


@dataclass(frozen=True, slots=True)
class Sent:
    """All messages, as the log has taken them."""

    places: Mapping[Place, Sample]

    @property
    def answerable(self) -> dict[tuple[str, int], Sample]:
        """Those that must be replied to, by session and number."""
        return {(each.session, each.number): each for each in self.places.values() if each.reply is not None}

    @property
    def hopeless(self) -> dict[Place, Sample]:
        """Those that must be in the dead letters."""
        return {place: each for place, each in self.places.items() if each.reply is None}


def audit_replies(sent: Sent, replies: Sequence[Found], audit: Audit) -> list[Reply]:
    """Look for a right reply to each message, in order within each session; give the replies that could be read."""
    answerable = sent.answerable
    read: list[Reply] = []
    partitions: dict[str, set[int]] = defaultdict(set)
    numbers: dict[str, list[int]] = defaultdict(list)
    for found in sorted(replies, key=_place):
        reply = _decoded(found)
        sample = answerable.get((reply.session, reply.number)) if reply else None
        if reply is None or sample is None:
            audit.note("unknown", f"the reply at {found.partition}@{found.offset} answers no message that was sent")
            continue
        read.append(reply)
        partitions[reply.session].add(found.partition)
        numbers[reply.session].append(reply.number)
        if (found.key, reply.text) != (reply.session.encode(), sample.reply):
            audit.note("wrong", f"{_told(sample)} was answered with {reply.text!r} under key {found.key!r}")
    for session, given in numbers.items():
        if len(partitions[session]) > 1:
            audit.note("reordered", f"the replies of {session} are in partitions {sorted(partitions[session])}")
        _audit_order(session, given, audit)
    for (session, number), sample in answerable.items():
        if number not in numbers.get(session, ()):
            audit.note("lost", f"{_told(sample)} has no reply")
    return read


def _audit_order(session: str, numbers: Sequence[int], audit: Audit) -> None:
    """Follow the replies of one session: each is the next one, or a crash began a repetition that leaves out none."""
    seen: set[int] = set()
    last = highest = -1
    is_repetition = False
    for number in numbers:
        if number in seen:
            audit.note("duplicates", f"{session} got the reply to its message {number} twice")
        elif number < highest:
            audit.note("reordered", f"{session} got the reply to its message {number} after that to {highest}")
        left_out = [each for each in range(last + 1, number) if each in seen]
        if is_repetition and left_out:
            audit.note("reordered", f"{session} got replies again up to {last}, and then not that to {left_out[0]}")
        is_repetition = number in seen
        seen.add(number)
        last, highest = number, max(highest, number)


def audit_letters(sent: Sent, letters: Sequence[Found], audit: Audit) -> int:
    """Look for a dead letter of each message that nobody can answer, byte for byte; give how many there are."""
    hopeless = sent.hopeless
    seen: set[Place] = set()
    for found in sorted(letters, key=_place):
        place = _origin(found)
        sample = hopeless.get(place) if place else None
        if place is None or sample is None:
            audit.note("unknown", f"the dead letter at {found.partition}@{found.offset} is of no hopeless message")
        elif place in seen:
            audit.note("duplicates", f"{_told(sample)} is in the dead letters twice")
        elif (found.key, found.value) != (sample.session.encode(), sample.value):
            audit.note("wrong", f"the dead letter of {_told(sample)} does not have its bytes: {found.value!r}")
        if place is not None:
            seen.add(place)
    for place, sample in hopeless.items():
        if place not in seen:
            audit.note("lost", f"{_told(sample)} is not in the dead letters, and can have no reply")
    return len(seen & hopeless.keys())


def audit_table(replies: Iterable[Reply], rows: Iterable[Reply], audit: Audit) -> None:
    """Look for a row of each reply."""
    expected, rows_of = set(replies), Counter(rows)
    for reply in expected:
        if reply not in rows_of:
            audit.note("lost", f"the reply to message {reply.number} of {reply.session} is not in the table")
    for row, count in rows_of.items():
        if row not in expected:
            audit.note("unknown", f"the table has a row of no reply: {row}")
        elif count > 1:
            audit.note("duplicates", f"the table has {count} rows of {row}", count - 1)


def audit_positions(sent: Sent, positions: Mapping[int, int], audit: Audit) -> None:
    """Look whether the group has committed everything, and nothing else."""
    ends: Counter[int] = Counter()
    for partition, offset in sent.places:
        ends[partition] = max(ends[partition], offset + 1)
    for partition, end in sorted(ends.items()):
        if (at := positions.get(partition, 0)) != end:
            told = f"the group has committed {at} of partition {partition}, which ends at {end}"
            audit.note("uncommitted", told, abs(end - at))


def joined(verdict: Verdict, audits: Iterable[Audit], dead: int) -> Verdict:
    """Return the verdict of all witnesses: of each rule the largest count, because all tell of the same records."""
    audits = list(audits)
    if verdict.dead != dead:
        told = Audit("history")
        told.note("buried", f"members buried {verdict.dead} messages, and {dead} are in the dead letters")
        audits.append(told)
    findings = {each.checker: each for each in verdict.findings}
    excerpts = dict(zip(findings, verdict.excerpts, strict=True))
    for audit in audits:
        for rule, count in audit.counts.items():
            checker = {"duplicates": "duplicated"}.get(rule, rule)
            known = findings.get(checker, Finding(checker, 0))
            violation = Violation(LAST, "", None, (), None, f"{audit.witness}: {audit.sentences[rule]}")
            findings[checker] = replace(known, count=max(known.count, count), first=known.first or violation)
    return replace(
        verdict,
        findings=tuple(findings.values()),
        excerpts=tuple(excerpts.get(each, ()) for each in findings),
        dead=dead,
    )


LAST = 2**62
"""The place of a finding that has none in the history: behind all of it."""


def _place(found: Found) -> Place:
    return found.partition, found.offset


def _decoded(found: Found) -> Reply | None:
    try:
        return msgspec.json.decode(found.value or b"", type=Reply)
    except msgspec.MsgspecError:
        return None


def _origin(found: Found) -> Place | None:
    partition, offset = (found.headers.get(f"anabranch.{name}") or b"" for name in ("partition", "offset"))
    return (int(partition), int(offset)) if partition.isdigit() and offset.isdigit() else None


def _told(sample: Sample) -> str:
    return f"message {sample.number} of {sample.session}"
