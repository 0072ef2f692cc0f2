"""What a Spark master's name says: where it runs, and how many Spark tasks at once. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

SPARE_SLOTS: Final = 2
"""Beside the members, in a local session that we make: for the queries and for jobs of the user's."""
FAILURES_MAX: Final = 1000
"""Of one Spark task until Spark gives up on its job, in sessions that we make: a member that dies is started again."""
FAILURES_MAX_WITH_QUERIES: Final = 16
"""The same where queries share the session. Spark has one number for all jobs: with 1000 a query that cannot pass would
be tried for minutes before anyone hears of it. A member that dies more often makes the driver start all of them again.
"""

_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:,\s*(\*|\d+))?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")


@dataclass(frozen=True, slots=True)
class Master:
    """A master, described."""

    name: str
    is_on_this_machine: bool
    """Members see this machine's files."""
    slots: int | None
    """Spark tasks at once, where the name says it."""


def describe_master(name: str) -> Master:
    """Read a master's name."""
    if found := _LOCAL.fullmatch(name):
        number = found[1] or "1"
        return Master(name, True, cores() if number == "*" else int(number))
    if found := _LOCAL_CLUSTER.fullmatch(name):
        return Master(name, True, int(found[1]) * int(found[2]))
    return Master(name, False, None)


def failures_max(queries: int) -> int:
    """Return how often a Spark task may fail in a session for a run with so many queries."""
    return FAILURES_MAX_WITH_QUERIES if queries else FAILURES_MAX


def local_master(members: int, queries: int = 0) -> str:
    """Return the master of a session for so many members on this machine."""
    return f"local[{members + SPARE_SLOTS},{failures_max(queries)}]"


def cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
