"""A dead letter: the record byte for byte, and why it died as headers behind its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from anabranch.control.effects import DeadLetter

HEADERS_BYTES_MAX: Final = 8 * 1024
"""What our headers take at most, names included: the letters' topic has 64 KiB of room for them."""
_MESSAGE_BYTES_MAX: Final = 4096
_NAME_BYTES_MAX: Final = 512

Headers = list[tuple[str, bytes | None]]


class Parcel(NamedTuple):
    """A record to be sent, in the order of the library's arguments."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp_ms: int
    headers: Headers


def letter(effect: DeadLetter, group: str, topic: str, partitions: int) -> Parcel:
    """Make the letter.

    It goes to the partition that has its origin's number: so all letters of a key are in one partition, also where the
    ordering key is not the record's own, or there is none.
    """
    record = effect.task.record
    return Parcel(
        topic,
        record.value,
        record.key,
        record.partition % partitions,
        max(0, record.timestamp_ms),
        [*record.headers, *_causes(effect, group)],
    )


def _causes(effect: DeadLetter, group: str) -> Headers:
    record, cause = effect.task.record, effect.cause
    kind = type(cause)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return [
        ("anabranch.topic", _cut(record.topic, _NAME_BYTES_MAX)),
        ("anabranch.partition", b"%d" % record.partition),
        ("anabranch.offset", b"%d" % record.offset),
        ("anabranch.timestamp", b"%d" % record.timestamp_ms),
        ("anabranch.group", _cut(group, _NAME_BYTES_MAX)),
        ("anabranch.step", _cut(effect.step, _NAME_BYTES_MAX)),
        ("anabranch.attempts", b"%d" % effect.task.attempt),
        ("anabranch.error", _cut(name, _NAME_BYTES_MAX)),
        ("anabranch.message", _cut(str(cause), _MESSAGE_BYTES_MAX)),
    ]


def _cut(text: str, bytes_max: int) -> bytes:
    """Encode at most so many bytes, ending at a whole character."""
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= bytes_max:
        return encoded
    return encoded[:bytes_max].decode("utf-8", "ignore").encode()
