"""What `.read` is given, checked: topics or a pattern, and where to start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import UsageError
from anabranch.pipeline.draft import Decoding, Read
from anabranch.pipeline.handlers import inspect_function
from anabranch.pipeline.names import check_topic

if TYPE_CHECKING:
    from anabranch.core.policies import Ordering

_WORDS = ("committed", "earliest", "latest")


def compile_read(
    topics: Any, decoding: Decoding, *, key: Any, start: Any, ordering: Ordering | None, null_key_ordered: bool
) -> Read:
    """Return the read step, or refuse it with a sentence."""
    names, pattern = _topics(topics)
    return Read(
        topics=names,
        pattern=pattern,
        decoding=decoding,
        key=None if key is None else inspect_function(key, "read key", "record"),
        start=_start(start, names),
        ordering=ordering,
        null_key_ordered=null_key_ordered,
    )


def _topics(given: Any) -> tuple[tuple[str, ...], str | None]:
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (list, tuple, set)) else None
    if names is None:
        raise UsageError(f"read: given {given!r}; give a topic, a list of topics, or a pattern that begins with '^'")
    if not names:
        raise UsageError("read: given no topic; name at least one")
    patterns = [name for name in names if isinstance(name, str) and name.startswith("^")]
    if patterns and len(names) > 1:
        raise UsageError(
            f"read: {patterns[0]!r} is a pattern and stands beside others; "
            "give either names or one pattern ('^(orders|refunds)$' matches both)"
        )
    if patterns:
        return (), _pattern(patterns[0])
    if len(set(names)) < len(names):
        raise UsageError(f"read: a topic is named twice in {list(names)}; name each once")
    return tuple(check_topic(name, "read", written=False) for name in names), None


def _pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"read: {pattern!r} is not a regular expression: {error}") from error
    return pattern


def _start(start: Any, topics: tuple[str, ...]) -> Any:
    if isinstance(start, str) and start in _WORDS:
        return start
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise UsageError(f"read: start={start!r} has no time zone; give one: datetime(…, tzinfo=UTC)")
        return start
    if isinstance(start, Mapping) and start:
        return {_place(place, topics): _offset(offset) for place, offset in start.items()}
    raise UsageError(
        f"read: start={start!r} is not known; allowed is 'committed', 'earliest', 'latest', "
        "a datetime with a time zone, or {(topic, partition): offset}"
    )


def _place(place: Any, topics: tuple[str, ...]) -> tuple[str, int]:
    match place:
        case (str() as topic, int() as partition) if partition >= 0:
            if topics and topic not in topics:
                raise UsageError(f"read: start names topic {topic!r}, which is not read; read are {', '.join(topics)}")
            return topic, partition
    raise UsageError(f"read: start has the place {place!r}; a place is (topic, partition)")


def _offset(offset: Any) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise UsageError(f"read: start has the offset {offset!r}; an offset is a whole number from 0 on")
    return offset
