"""Make or take the Spark session of a run, and hold the slots that its members need.

A process has one Spark context, so one session serves all its runs. What the user gave, or has active, is taken as it
is and never stopped; else one is made, and stopped when its last run has ended. The JVM stays until the process ends:
the next session starts in it within a second or two.

Members keep their slots for as long as they run. So slots are counted here: a run for which there are not enough is
refused with a sentence instead of waiting for ever for a place.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from anabranch.core.errors import UsageError
from anabranch.spark.masters import cores, describe_master, local_master
from anabranch.spark.session_conf import anabranch_path, checked_conf
from anabranch.spark.session_start import make_session
from anabranch.spark.session_stop import stop_session
from anabranch.spark.slots import Places, decide_members, needed, slots_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["Session", "active_session", "make_session", "master_of", "open_session"]

_LOCK: Final = threading.RLock()


@dataclass(slots=True, eq=False)
class _Shared:
    """A Spark application, as far as runs of this process use it."""

    application: str
    is_ours: bool
    held: dict[int, int] = field(default_factory=dict)
    """Slots, by the session that holds them."""


_SHARED: Final[dict[str, _Shared]] = {}
"""By application id; at most one at a time in classic Spark."""


class Session:
    """A Spark session, and slots in it that are held for one run until `close`."""

    def __init__(self, shared: _Shared, spark: SparkSession, state_dir: Path, places: Places) -> None:
        """Hold the slots."""
        self.spark: Final = spark
        self.is_ours: Final = shared.is_ours
        """We made it, and stop it with its last run."""
        self.members: Final = places.members
        self.slots: Final = places.slots
        """Spark tasks that run at once, those of other runs included; None where nobody can tell."""
        self.is_on_this_machine: Final = describe_master(master_of(spark)).is_on_this_machine
        """Members see the files of this machine."""
        self.state_dir: Final = state_dir
        self._shared = shared
        shared.held[id(self)] = places.needed

    def close(self) -> None:
        """Give the slots back; stop the session if it is ours and this was its last run. May block for a second."""
        with _LOCK:
            self._shared.held.pop(id(self), None)
            _drop_if_unused(self._shared, self.spark)

    def __enter__(self) -> Self:
        """Use it for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        whose = "ours" if self.is_ours else "taken"
        return f"<Session on {master_of(self.spark)}, {whose}: {self.members} members, {self.slots} slots>"


def open_session(
    *,
    app: str,
    state_dir: Path,
    master: str | None = None,
    members: int | None = None,
    partitions: int = 1,
    queries: int = 0,
    conf: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> Session:
    """Take the given or active session, or make one; hold the slots that members and queries need.

    Without `members` there are as many as partitions, cores and free slots allow. Blocks for seconds when it makes a
    session, for longer when a cluster's executors have yet to come. Raises UsageError when there is no Java, when the
    session cannot be had as asked, or when it has too few slots.
    """
    with _LOCK:
        taken = spark or active_session()
        if taken is not None and context_of(taken) is None:
            raise UsageError(
                "this is a Spark Connect session, which cannot start members; give a classic session, made with "
                "SparkSession.builder.master(...), or leave SPARK_REMOTE unset and give none"
            )
        if taken is None:
            if master is None:
                members = members or max(1, min(partitions, cores()))
                master = local_master(members, queries)
            taken = make_session(app, master, conf or {}, state_dir, queries)
            shared = _Shared(_application_of(taken), is_ours=True)
        else:
            _refuse_changes(taken, master, conf or {})
            _fit_python(taken)
            application = _application_of(taken)
            shared = _SHARED.get(application) or _Shared(application, is_ours=False)
        _SHARED[shared.application] = shared
        try:
            return Session(shared, taken, state_dir, _places(shared, taken, members, partitions, queries))
        except BaseException:
            _drop_if_unused(shared, taken)
            raise


def _places(shared: _Shared, spark: SparkSession, members: int | None, partitions: int, queries: int) -> Places:
    others = sum(shared.held.values())
    least, most = (others + needed(count, queries) for count in (members or 1, members or partitions))
    slots = slots_of(context_of(spark), least, most)
    decided = decide_members(members, partitions, queries, slots=slots, others=others, master=master_of(spark))
    return Places(decided, needed(decided, queries), slots)


def _drop_if_unused(shared: _Shared, spark: SparkSession) -> None:
    if not shared.held and _SHARED.get(shared.application) is shared:
        del _SHARED[shared.application]
        if shared.is_ours:
            stop_session(spark)


def active_session() -> SparkSession | None:
    """Return the session that this process has, whoever made it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is None and SparkContext._active_spark_context is not None:  # noqa: SLF001 - asking aloud would make one
        found = SparkSession.builder.getOrCreate()  # of another thread
    return found


def master_of(spark: SparkSession) -> str:
    """Return the master's name; a Connect session does not tell it."""
    context = context_of(spark)
    return "connect" if context is None else str(context.master)


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the Spark context; a Connect session has none here."""
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    return context


def _application_of(spark: SparkSession) -> str:
    context = context_of(spark)
    return f"connect-{id(spark)}" if context is None else str(context.applicationId)


def _refuse_changes(spark: SparkSession, master: str | None, conf: Mapping[str, str]) -> None:
    """Refuse what a session that exists cannot become."""
    fix = "leave the option out, or stop that session first"
    has = master_of(spark)
    if master is not None and master != has:
        raise UsageError(f"master={master!r}: this process has a Spark session on {has!r} already; {fix}")
    for name, value in checked_conf(conf).items():
        if spark.conf.get(name, None) != value:
            raise UsageError(f"conf {name}={value}: this process has a Spark session without it already; {fix}")
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise UsageError(
            "this Spark session has spark.speculation=true, which would start members twice; make it without"
        )


def _fit_python(spark: SparkSession) -> None:
    """Let Spark's Python workers on this machine be what this process is, where the user has not said otherwise."""
    context = context_of(spark)
    if context is None or not describe_master(str(context.master)).is_on_this_machine:
        return
    if not os.environ.get("PYSPARK_PYTHON"):
        context.pythonExec = sys.executable
    if path := anabranch_path():
        context.environment.setdefault("PYTHONPATH", path)
