"""The Spark job whose tasks are the members: they do not return before the run ends.

An RDD of as many numbers as there are members, one to a partition. `mapInArrow` over a range, which would do the same,
wants pandas on the driver (pyspark 4.3) and pyarrow in every worker; this wants nothing, and starts sooner.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from anabranch.spark.member import Orders

ERROR_CHARACTERS_MAX: Final = 2000
FAILURES_MAX: Final = 4
"""Of each member before it has connected: Spark's own patience where it is not told otherwise."""


class LanesJob:
    """One start of the members.

    `ended` is called on a thread of the job's own: with the job's number, Spark's error or nothing, and whether Spark
    itself has ended, so that no other job can follow.
    """

    def __init__(
        self, spark: SparkSession, orders: Orders, members: int, ended: Callable[[int, str, bool], None]
    ) -> None:
        """Do nothing yet."""
        self._context: Any = spark.sparkContext
        self._orders = orders
        self._members = members
        self._ended = ended
        self._tag = f"anabranch-{secrets.token_hex(4)}-{orders.job}"  # shown by Spark: nothing of the token

    def start(self) -> None:
        """Have Spark start the members; never blocks."""
        from pyspark import InheritableThread

        InheritableThread(target=self._run, name=f"anabranch-job-{self._orders.group}", daemon=True).start()

    def cancel(self) -> None:
        """Have Spark kill the tasks that are left. Blocks for a call to the JVM."""
        self._context.cancelJobGroup(self._tag)

    def failure(self) -> str:
        """Return why members do not start, if Spark has tried it often; else nothing. Blocks for calls to the JVM.

        Meant for a job of which no member has come: what fails before it connects (a package that is not there, another
        Python, no way to the driver) would be tried again up to spark.task.maxFailures times before Spark tells.
        """
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._tag):
            for stage in getattr(tracker.getJobInfo(job), "stageIds", ()):
                info = tracker.getStageInfo(stage)
                if info is not None and info.numFailedTasks >= FAILURES_MAX * self._members:
                    return self._failure_of(stage)
        return ""

    def _failure_of(self, stage: int) -> str:
        """Ask Spark's own store of events, which nothing public in Python reads."""
        store = self._context._jsc.sc().statusStore()  # noqa: SLF001 - as said
        tasks = store.taskList(stage, 0, FAILURES_MAX * self._members * 2)
        messages = (tasks.apply(number).errorMessage() for number in range(tasks.size()))
        return next((_shortened(str(each.get())) for each in messages if each.isDefined()), "its tasks failed")

    def _run(self) -> None:
        error, is_final = "", False
        try:
            self._context.setJobGroup(self._tag, f"anabranch: members of {self._orders.group}", True)
            numbers = self._context.parallelize(range(self._members), self._members)
            numbers.mapPartitionsWithIndex(partial(_be_member, self._orders)).collect()
        except Exception as problem:  # whatever it is, the supervisor decides what follows from it
            error, is_final = _shortened(str(problem)), self._has_ended()
        self._ended(self._orders.job, error, is_final)

    def _has_ended(self) -> bool:
        """Tell whether the Spark context was stopped, or its JVM is gone."""
        try:
            return bool(self._context._jsc.sc().isStopped())  # noqa: SLF001 - Python's context does not tell
        except Exception:  # py4j's own kinds, when nobody answers
            return True


def _be_member(orders: Orders, index: int, _numbers: Iterator[int]) -> Iterator[str]:
    from pyspark import TaskContext

    from anabranch.spark.member import run_member

    context = TaskContext.get()
    assert context is not None
    yield run_member(orders, index, context.attemptNumber())


def _shortened(text: str) -> str:
    """Return what a person can use of Spark's error: the last Python exception in it, else its beginning."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _looks_like_python(line)]
    return (python[-1] if python else " ".join(lines[:3]))[:ERROR_CHARACTERS_MAX]


def _looks_like_python(line: str) -> bool:
    name, colon, _ = line.partition(":")
    last = name.rpartition(".")[2]
    return bool(colon) and last.isidentifier() and last.endswith(("Error", "Failed", "Exception", "Interrupt"))
