"""Statistics as plain values: what JSON can hold, whoever made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from anabranch.core.work import TopicPartition


def plain(value: Any) -> Any:
    """Return a value made of dicts, lists, texts, numbers, booleans and None only.

    A dataclass or named tuple becomes a dict by its field names, an enum its value, a partition `topic/number`.
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Sequence | set | frozenset):
        return [plain(each) for each in value]
    return str(value)
