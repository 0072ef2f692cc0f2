"""Carries what is settled ahead of the committed position to the next owner, in the commit's metadata.

The text is `anabranch:1:` and base64 (URL alphabet, no padding) of: CRC-32, topic id, committable, the offsets where
the leader epoch changes, and a body (see `carryover_body`). It has at most `TEXT_CHARACTERS_MAX` characters: Kafka
takes 4,096 UTF-16 units, and the binding adds a NUL. What does not fit is left out from the far end: less knowledge,
so repeats, never more knowledge and never a stall.

The rule of C9: what is wrong about a text costs only repeats, what we wrongly believe costs records. So a text is
believed only if all of this holds, and otherwise nothing is skipped:

- it is whole, of a version that we know, and within bounds that cost us little to look at;
- it is about this topic: the same topic id, so not an older topic of the same name (two unknown ids are the same:
  then epochs and bounds must do, and Kafka forgets the commits of a deleted topic);
- reading does not begin below its committable position: someone who sets a group back wants to see records again.
  Reading may begin above, where retention has moved the start of the log;
- no settled offset lies beyond the end of the log: that log was cut back, and will hand these offsets out again.

A record that is fetched is skipped only if its leader epoch is the stored one. After a truncation the same offset is
written under a higher epoch, so it is not skipped even when the log has grown past the carryover again. An unknown
epoch (-1) matches only an unknown one.

Rejected: base85 (characters that shells and consoles mistreat, for 6 % more room); a signature (who may forge commit
metadata may as well commit any position).
"""

from __future__ import annotations

import base64
import binascii
import zlib
from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Final

from anabranch.control.carryover_body import Damaged, pack, read_varints, unpack, varints
from anabranch.control.leader_epochs import UNKNOWN, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from anabranch.core.records import Record

TEXT_CHARACTERS_MAX: Final = 4000
RUNS_MAX: Final = 8_000
"""Looked at when encoding, which bounds the time of a commit: 3,000 bytes of a bitset seldom hold more."""
EPOCHS_MAX: Final = 64
"""Leader epochs in one text; the runs after so many changes are left out."""
TOPIC_ID_BYTES_MAX: Final = 64

_NAME: Final = "anabranch:"
_PREFIX: Final = "anabranch:1:"
_PAYLOAD_BYTES_MAX: Final = (TEXT_CHARACTERS_MAX - len(_PREFIX)) * 3 // 4
_CRC_BYTES: Final = 4


class Carryover:
    """Settled offsets that an owner before us has told of. Falsy when there are none."""

    __slots__ = ("_epochs", "_firsts", "_lasts", "end", "reason")

    def __init__(self, runs: Iterable[Run] = (), reason: str = "") -> None:
        """Take rising runs, or why there are none."""
        runs = list(runs)
        self._firsts = [run.first for run in runs]
        self._lasts = [run.last for run in runs]
        self._epochs = [run.leader_epoch for run in runs]
        self.end = self._lasts[-1] + 1 if runs else 0
        """No offset from here on is covered."""
        self.reason = reason
        """Why the metadata that was found is not believed; empty when it is, and when there was none."""

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __repr__(self) -> str:
        return f"<Carryover runs={len(self._firsts)} settled={self.settled} end={self.end} reason={self.reason!r}>"

    @property
    def settled(self) -> int:
        """How many offsets are covered."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    @property
    def runs(self) -> list[Run]:
        """The covered offsets, rising."""
        return list(map(Run, self._firsts, self._lasts, self._epochs))

    def covers(self, offset: int, leader_epoch: int) -> bool:
        """Say whether this very record is settled."""
        index = bisect_right(self._firsts, offset) - 1
        return index >= 0 and offset <= self._lasts[index] and leader_epoch == self._epochs[index]

    def covered(self, records: Sequence[Record]) -> list[int]:
        """Answer the indexes of those records that are settled, rising; the records' offsets rise too."""
        if not records or records[0].offset >= self.end:
            return []
        firsts, lasts, epochs = self._firsts, self._lasts, self._epochs
        index = max(0, bisect_right(firsts, records[0].offset) - 1)
        found = []
        for number, record in enumerate(records):
            offset = record.offset
            if offset >= self.end:
                break
            while offset > lasts[index]:
                index += 1
            if offset >= firsts[index] and record.leader_epoch == epochs[index]:
                found.append(number)
        return found

    def beyond(self, position: int) -> Iterator[Run]:
        """Give the runs from a position on: what a commit must go on telling until it has been read."""
        index = bisect_right(self._lasts, position - 1)
        for run in map(Run, self._firsts[index:], self._lasts[index:], self._epochs[index:]):
            yield Run(max(run.first, position), run.last, run.leader_epoch)


def encode(runs: Iterable[Run], *, committable: int, topic_id: str) -> str:
    """Write rising runs of settled offsets above committable as text; empty when there are none."""
    steps, changes = _relative(islice(runs, RUNS_MAX), committable)
    topic = topic_id.encode()
    if not steps or len(topic) > TOPIC_ID_BYTES_MAX:
        return ""
    head = varints([len(topic)]) + topic + varints([committable, len(changes) // 2, *changes])
    body = pack(steps, _PAYLOAD_BYTES_MAX - _CRC_BYTES - len(head))
    if not body:
        return ""
    payload = head + body
    whole = zlib.crc32(payload).to_bytes(_CRC_BYTES, "big") + payload
    return _PREFIX + base64.urlsafe_b64encode(whole).decode().rstrip("=")


def decode(text: str, *, topic_id: str, position: int, log_start: int, log_end: int) -> Carryover:
    """Read commit metadata. Never raises: what is not believed gives an empty carryover with the reason."""
    text = text.rstrip("\0")
    if not text:
        return Carryover()
    if not text.startswith(_NAME):
        return Carryover(reason="the commit metadata was written by another tool")
    if not text.startswith(_PREFIX):
        return Carryover(reason=f"its version {text[len(_NAME) :][:8]!r} is not known here")
    try:
        stored_id, committable, runs = _read(text)
    except Damaged as error:
        return Carryover(reason=f"it is damaged: {error}")
    if stored_id != topic_id:
        return Carryover(reason=f"it is about the topic id {stored_id!r}, and this topic has {topic_id!r}")
    if position < committable:
        return Carryover(reason=f"reading begins at {position}, below the position {committable} that it belongs to")
    if runs and runs[-1].last >= log_end:
        return Carryover(reason=f"it tells of offset {runs[-1].last}, and the log ends at {log_end}")
    return Carryover(Carryover(runs).beyond(max(position, log_start)))


def topic_id_of(text: str) -> str:
    """Return the id of the topic that commit metadata is about; empty when it does not say, or cannot be read."""
    text = text.rstrip("\0")
    if not text.startswith(_PREFIX):
        return ""
    try:
        return _read(text)[0]
    except Damaged:
        return ""


def _relative(runs: Iterable[Run], committable: int) -> tuple[list[int], list[int]]:
    """Answer steps from committable on, and the epoch changes as (distance from the last change, epoch + 1) pairs."""
    steps: list[int] = []
    changes: list[int] = []
    end = changed_at = committable
    epoch = None
    for run in runs:
        if run.leader_epoch != epoch:
            if len(changes) == 2 * EPOCHS_MAX:
                break
            changes += (run.first - changed_at, run.leader_epoch - UNKNOWN)
            changed_at, epoch = run.first, run.leader_epoch
        length = run.last - run.first + 1
        if run.first == end and steps:
            steps[-1] += length
        else:
            steps += (run.first - end, length)
        end = run.last + 1
    return steps, changes


def _read(text: str) -> tuple[str, int, list[Run]]:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise Damaged("it is too long")
    encoded = text[len(_PREFIX) :]
    try:
        whole = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise Damaged("it is not base64") from error
    payload = whole[_CRC_BYTES:]
    if zlib.crc32(payload).to_bytes(_CRC_BYTES, "big") != whole[:_CRC_BYTES]:
        raise Damaged("its checksum does not fit")
    return _parse(payload)


def _parse(payload: bytes) -> tuple[str, int, list[Run]]:
    (length,), rest = _take_varints(payload, 1)
    try:
        topic_id = rest[:length].decode()
    except UnicodeDecodeError as error:
        raise Damaged("its topic id is not text") from error
    (committable, count), rest = _take_varints(rest[length:], 2)
    if count > EPOCHS_MAX:
        raise Damaged("it has too many leader epochs")
    changes, body = _take_varints(rest, 2 * count)
    return topic_id, committable, list(_absolute(unpack(body), committable, changes))


def _take_varints(data: bytes, count: int) -> tuple[list[int], bytes]:
    """Read so many numbers; answer them and the rest."""
    end = 0
    for _ in range(count):
        while end < len(data) and data[end] >= 128:
            end += 1
        end += 1
    if end > len(data):
        raise Damaged("it is cut off")
    return read_varints(data[:end]), data[end:]


def _absolute(steps: Sequence[int], committable: int, changes: Sequence[int]) -> Iterator[Run]:
    """Give runs of one leader epoch each; an offset before the first change has no known epoch."""
    starts: list[int] = []
    at = committable
    for distance in changes[::2]:
        at += distance
        starts.append(at)
    epochs = [UNKNOWN, *(change + UNKNOWN for change in changes[1::2])]
    index = 0
    end = committable
    for gap, length in zip(steps[::2], steps[1::2], strict=True):
        first, end = end + gap, end + gap + length
        while index < len(starts) and starts[index] < end:
            if starts[index] > first:
                yield Run(first, starts[index] - 1, epochs[index])
                first = starts[index]
            index += 1
        yield Run(first, end - 1, epochs[index])
