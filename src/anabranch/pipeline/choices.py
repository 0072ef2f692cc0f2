"""The small values that steps are given, checked."""

from __future__ import annotations

from typing import Any, TypeVar

from anabranch.core.errors import UsageError
from anabranch.core.policies import Ordering

P = TypeVar("P")


def policy(given: P | None, kind: type[P], name: str) -> P:
    """Return the policy given, or its default."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise UsageError(f"{name}: given {given!r}; give {kind.__name__}(…), or leave it out")
    return given


def checked_ordering(given: Any, where: str) -> Ordering | None:
    """Return the ordering by its name; None when none was chosen."""
    if given is None or isinstance(given, Ordering):
        return given
    try:
        return Ordering(given)
    except ValueError:
        allowed = " or ".join(repr(each.value) for each in Ordering)
        raise UsageError(f"{where}: ordering={given!r} is not known; allowed is {allowed}") from None


def is_ordered(null_key: Any) -> bool:
    """Say whether records without a key keep their order."""
    if null_key not in {"ordered", "unordered"}:
        raise UsageError(f"read: null_key={null_key!r} is not known; allowed is 'unordered' or 'ordered'")
    return bool(null_key == "ordered")


def checked_count(given: Any, what: str) -> int:
    """Return a whole number of at least one."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise UsageError(f"{what}: given {given!r}, allowed is a whole number of at least 1")
    return given


def checked_seconds(given: Any, what: str) -> float | None:
    """Return a time above zero, or None for no limit."""
    if given is None:
        return None
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not given > 0:
        raise UsageError(f"{what}: given {given!r}, allowed is a number of seconds above 0, or None for no limit")
    return float(given)
