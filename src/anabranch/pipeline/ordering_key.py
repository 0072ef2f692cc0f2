"""The ordering key that `read(key=…)` chooses, made safe for the consumer that asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.errors import DecodeError, HandlerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.core.records import Record


def compile_ordering_key(
    function: Callable[[Record], Any],
) -> tuple[Callable[[Record], bytes | None], Callable[[Record], bytes | None]]:
    """Return the key function twice: one that never raises, for the consumer, and one that does, for the first step.

    A record whose key cannot be told takes the lane of its own key and dies in its first step like any poison. The
    consumer, which asks first, has no way to let a record die.
    """

    def strict(record: Record) -> bytes | None:
        try:
            key = function(record)
            if key is None or type(key) is bytes:
                return key
            if isinstance(key, str):
                return key.encode()
        except HandlerError:
            raise
        except Exception as error:
            raise DecodeError(f"{_place(record)}: read(key=…) failed: {type(error).__name__}: {error}") from error
        raise DecodeError(
            f"{_place(record)}: read(key=…) gave a value of type {type(key).__name__}: give bytes, str or None"
        )

    def safe(record: Record) -> bytes | None:
        try:
            return strict(record)
        except HandlerError:
            return record.key

    return safe, strict


def _place(record: Record) -> str:
    return f"{record.topic}/{record.partition}@{record.offset}"
