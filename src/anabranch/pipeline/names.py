"""What topics, pipelines and steps may be called."""

from __future__ import annotations

import re
from typing import Any

from anabranch.core.errors import UsageError

_LEGAL = re.compile(r"[A-Za-z0-9._-]+\Z")
_LENGTH_MAX = 249  # Kafka's own limit for topics; groups and steps become parts of topic and folder names


def topic_fault(name: Any, *, written: bool = True) -> str | None:
    """Say what is wrong with a topic's name, and what to do; None when nothing is."""
    fault = _fault(name)
    if fault is None and written and name.startswith("__"):
        return "names that begin with __ are kept by the broker for itself; choose another"
    return fault


def check_name(name: Any, what: str) -> str:
    """Return the name of a pipeline or step; refuse one that could not be part of a topic's name and a folder's."""
    fault = _fault(name)
    if fault is None and (name.startswith(("__", "anabranch.")) or name == "anabranch"):
        fault = "names that begin with __ or anabranch. are reserved; choose another"
    if fault is not None:
        raise UsageError(f"{what} {name!r}: {fault}")
    return str(name)


def check_topic(name: Any, what: str, *, written: bool = True) -> str:
    """Return the name of a topic; refuse one that Kafka would."""
    fault = topic_fault(name, written=written)
    if fault is not None:
        raise UsageError(f"{what} {name!r}: {fault}")
    return str(name)


def step_name(given: str | None, derived: str, taken: frozenset[str]) -> str:
    """Return a step's name: the one given, which must be free, or one made from its handler's."""
    if given is not None:
        name = check_name(given, "process name")
        if name in taken:
            raise UsageError(f"process name {name!r}: another step has it; give each step a name of its own")
        return name
    return unique_name(derived, taken, "process")


def unique_name(derived: str, taken: frozenset[str], fallback: str) -> str:
    """Return a name made from another that may not be one, numbered where it is taken."""
    stem = derived if _fault(derived) is None and not derived.startswith("__") else fallback
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    return name


def _fault(name: Any) -> str | None:
    if not isinstance(name, str) or not _LEGAL.match(name) or name in {".", ".."}:
        return "a name is made of the letters a to z and A to Z, digits, '.', '_' and '-'"
    if len(name) > _LENGTH_MAX:
        return f"a name has at most {_LENGTH_MAX} characters"
    return None
