"""The keyword arguments that overloads of one step share, for editors and type checkers. Defaults are the step's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypedDict

from anabranch.core.records import Record

if TYPE_CHECKING:
    from anabranch.core.policies import Breaker, Retry

OrderingName = Literal["key", "partition", "none"]
NullKey = Literal["unordered", "ordered"]
StartAt = Literal["committed", "earliest", "latest"] | datetime | Mapping[tuple[str, int], int]
OrderingKey = Callable[[Record], bytes | str | None]


class ReadKeywords(TypedDict, total=False):
    """Of `read`."""

    key: OrderingKey | None
    start: StartAt
    ordering: OrderingName | None
    null_key: NullKey


class ProcessKeywords(TypedDict, total=False):
    """Of `process`."""

    name: str | None
    concurrency: int
    timeout_s: float | None
    retry: Retry | None
    breaker: Breaker | None
    ordering: OrderingName | None
