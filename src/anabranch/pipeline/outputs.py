"""What a handler gives back: `Out`, and how a result becomes records to be written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

V_co = TypeVar("V_co", covariant=True)

HeaderValue = bytes | str | None


class Unset(Enum):
    """The absence of a choice, where None is a choice."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET


@final
@dataclass(frozen=True, slots=True)
class Out(Generic[V_co]):
    """A record to be written, where a plain value would not say enough.

    It is checked and encoded when the handler has returned; one that cannot be written is poison.
    """

    value: V_co
    """Encoded as a plain value would be; None writes a null value (a tombstone)."""
    key: bytes | str | Unset | None = UNSET
    """Left out: the key of the record that was handled. None: no key."""
    headers: Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]] = ()
    """Added to the headers carried over from the record; one of the same name replaces them."""
    topic: str | None = None
    """None: where `.write` says."""
    timestamp: datetime | None = None
    """None: when it is written."""
