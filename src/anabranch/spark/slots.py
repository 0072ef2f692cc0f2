"""How many Spark tasks a session runs at once, and how many members that allows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import UsageError
from anabranch.spark.masters import describe_master

if TYPE_CHECKING:
    from pyspark import SparkContext

COME_S_MAX: Final = 60.0
"""How long the first executor of a cluster has to come, until the run is refused."""
MORE_S_MAX: Final = 15.0
"""After an executor has come: how long to wait for the next when there are too few slots."""
SETTLE_S: Final = 3.0
"""The same when there are enough, but more would be welcome."""
_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Places:
    """What a run gets of a session."""

    members: int
    needed: int
    """Slots, that of the queries included."""
    slots: int | None
    """Of the whole session."""


def needed(members: int, queries: int) -> int:
    """Return the slots that a run holds or must leave free: one each for its members, one for all its queries."""
    return members + (1 if queries else 0)


def decide_members(
    wanted: int | None, partitions: int, queries: int, *, slots: int | None, others: int = 0, master: str
) -> int:
    """Return how many members a run has; raise UsageError when there is no room for them beside `others`."""
    if slots is None:
        return wanted or max(1, partitions)
    free = slots - others
    if needed(wanted or 1, queries) <= free:
        return wanted or max(1, min(partitions, free - needed(0, queries)))
    besides = f", and other runs hold {others} of them" if others else ""
    room = "one member" if (wanted or 1) == 1 else f"{wanted} members"
    room += " and a slot for the queries" if queries else ""
    fix = "give it more cores" + (", or ask for fewer members" if (wanted or 1) > 1 else "")
    raise UsageError(f"Spark on {master} has {slots} slots{besides}: there is no room for {room}; {fix}")


def slots_of(context: SparkContext | None, least: int, most: int) -> int | None:
    """Tell how many Spark tasks run at once. On a cluster, wait for executors to come, at most until there are `most`.

    None when nobody can tell: on Connect, and where the cluster gives executors as they are needed.
    """
    if context is None:
        return None
    said = describe_master(str(context.master)).slots
    if said is not None:
        return said
    if str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        return None
    slots, grown_at = 0, time.monotonic()
    while slots < most:
        before, slots = slots, _registered(context)
        patience_s = SETTLE_S if slots >= least else MORE_S_MAX if slots else COME_S_MAX
        now = time.monotonic()
        if slots > before:
            grown_at = now
        elif now - grown_at > patience_s:
            break
        time.sleep(_LOOK_S)
    return slots


def _registered(context: SparkContext) -> int:
    """Ask the scheduler how many Spark tasks the executors that have come can run."""
    inside: Any = context._jsc.sc()  # noqa: SLF001 - the JVM's context tells it, Python's does not
    return int(inside.maxNumConcurrentTasks(inside.resourceProfileManager().defaultResourceProfile()))
