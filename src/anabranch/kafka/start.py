"""Where reading begins, in the words that kcat made common."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass

from anabranch.core.errors import UsageError

_OFFSET_MAX = 2**63 - 1


class StartKind(enum.Enum):
    """The ways to say where to begin."""

    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "offset"
    LAST = "last"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in each partition; the number is an offset, a count of records or milliseconds since 1970."""

    kind: StartKind
    number: int = 0


def parse_start(text: str) -> Start:
    """Read a start: beginning, end, stored, 42, -5 (the last five), @1700000000000 or @2031-05-04."""
    if text in {"beginning", "end", "stored"}:
        return Start(StartKind(text))
    if text.startswith("@"):
        return Start(StartKind.TIME, _milliseconds(text[1:]))
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or int(digits) > _OFFSET_MAX:
        raise UsageError(
            f"start {text!r}: allowed is beginning, end, stored, an offset, -N for the last N records, "
            "or @ and a time (milliseconds since 1970, or as in 2031-05-04T12:00:00Z)"
        )
    return Start(StartKind.LAST if text.startswith("-") else StartKind.OFFSET, int(digits))


def _milliseconds(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= _OFFSET_MAX:
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"time {text!r}: allowed is milliseconds since 1970, or a time as in 2031-05-04T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1000)
