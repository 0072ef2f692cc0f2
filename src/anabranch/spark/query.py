"""One Structured Streaming query of a pipeline: made, started, watched, started again, and stopped between two batches.

Every query hands its micro-batches to a function on the driver (`foreachBatch`), so that there is one place where a
batch begins. This is how it stops without tearing one apart: once it is closing, no batch begins any more (the function
raises before it has done anything), and Spark is told to stop when the last one that began is committed. A batch that
could not be waited for is run again at the next start.

A query that fails is started again with growing pauses; when the same batch has failed `ATTEMPTS_MAX` times in a row,
or when another try cannot help, it has failed for good, and says so in a sentence.
"""

from __future__ import annotations

import logging
import threading
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import AnabranchError, Halted, UsageError
from anabranch.kafka.extents import lost_sentence
from anabranch.pipeline.queries import BatchSink
from anabranch.spark.checkpoint import (
    committed,
    location_of,
    newest_commit,
    only_enters,
    planned,
    running_id,
    spans,
)
from anabranch.spark.positions import Positions, beyond, removed
from anabranch.spark.query_errors import ANOTHER_NAME, failure, is_final, said
from anabranch.spark.query_sinks import prepare_sink
from anabranch.spark.stream import first_line, transformed
from anabranch.spark.tables import Batch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.kafka.extents import Seen
    from anabranch.pipeline.queries import QueryPlan
    from anabranch.spark.query_sinks import Write
    from anabranch.spark.stream import Outputs

LOGGER: Final = logging.getLogger("anabranch.spark.queries")
ATTEMPTS_MAX: Final = 5
BACKOFF_S: Final = 1.0
STOP_S: Final = 10.0


class State(Enum):
    """Of a query."""

    NEW = "new"
    RUNNING = "running"
    WAITING = "waiting"
    """It failed, and will be started again."""
    DONE = "done"
    """It has come to the end that it was given."""
    FAILED = "failed"
    STOPPED = "stopped"


class Closing(Exception):
    """Raised instead of beginning a batch: the query is being stopped, and the batch is left to its next start."""


class Query:
    """One query. Used by one thread at a time, but for the batches, which come on a thread of Spark's."""

    def __init__(self, spark: SparkSession, group: str, plan: QueryPlan, outputs: Outputs, folder: Path) -> None:
        """Remember what to do; nothing is made yet."""
        self.plan: Final = plan
        self.state = State.NEW
        self.error: AnabranchError | None = None
        self.problem = ""
        """What it failed of the last time."""
        self._spark = spark
        self._name = f"{group}.{plan.name}"
        self._outputs = outputs
        self._folder = folder
        self._frame: DataFrame | None = None
        self._write: Write | None = None
        self._running: StreamingQuery | None = None
        self._to_end = False
        self._failures = 0
        self._failed_after: int | None = None
        self._again_at = 0.0
        self._closing = threading.Event()
        self._begun: int | None = None
        self._busy = False
        self._may_be_repeated = True
        self.seen: Seen = {}
        """The topic of the outputs as it was seen last; whoever looks at it puts it here."""
        self._lost: dict[int, int] = {}

    # ── making and starting ──

    def prepare(self, rows: DataFrame, seen: Seen, *, halts_beyond_end: bool = True) -> None:
        """Make its frame from the outputs, and ready where that goes; raise UsageError for what cannot work."""
        self.seen = seen
        self._check_place(seen)
        if halts_beyond_end and any(beyond(each, seen) for each in committed(self._folder)):
            raise Halted(
                f"query {self.plan.name!r}: its place lies beyond the end of topic {self._outputs.topic}: the log was "
                f'truncated. {ANOTHER_NAME}; or go on at the end with on_beyond_end="log_end"'
            )
        try:
            frame = transformed(rows, self.plan.transforms)
            self._frame, self._write = prepare_sink(self._spark, self.plan.sink, self._outputs, frame)
        except UsageError as error:
            raise UsageError(f"query {self.plan.name!r}: {error}") from error

    def start(self, *, to_end: bool = False) -> None:
        """Start it: for ever, or up to the end that its topic has now. Blocks for a moment; raises our errors only."""
        from pyspark.errors import AnalysisException

        assert self._frame is not None
        if self._is_active():
            raise Halted(f"query {self.plan.name!r}: a batch of it does not end; look at what its function waits for")
        self._closing.clear()
        self._to_end = to_end
        self._begun, self._may_be_repeated = None, True
        sink = self.plan.sink
        writer = (
            self._frame.writeStream.queryName(self._name)
            .outputMode(sink.output_mode if isinstance(sink, BatchSink) else "append")
            .option("checkpointLocation", location_of(self._folder))
            .foreachBatch(self._take)
        )
        every = (
            {"availableNow": True} if to_end else {"processingTime": f"{round(self.plan.every_s * 1000)} milliseconds"}
        )
        try:
            self._running = writer.trigger(**every).start()
        except AnalysisException as error:
            raise UsageError(f"query {self.plan.name!r} cannot run on a stream: {first_line(error)}") from error
        except Exception as error:
            raise failure(self.plan.name, error, 1) from error
        self.state = State.RUNNING

    def _check_place(self, seen: Seen) -> None:
        """Refuse a place in a topic that is not the one to be read."""
        topic = self._outputs.topic
        places = [each.topics for each in planned(self._folder) if each.topics]
        mine = next((topics[topic] for topics in places if topic in topics), None)
        if places and mine is None:
            raise UsageError(
                f"query {self.plan.name!r}: it has come to a place in topic {next(iter(places[0]))} "
                f"(in {self._folder}), and the outputs go to {topic} now. {ANOTHER_NAME}"
            )
        if mine is not None and mine.id and topic in seen and seen[topic].id and mine.id != seen[topic].id:
            raise UsageError(
                f"query {self.plan.name!r}: topic {topic} was deleted and made again, or is one of another cluster, "
                f"since the query came to its place (in {self._folder}). {ANOTHER_NAME}"
            )

    # ── on Spark's thread ──

    def _take(self, frame: DataFrame, number: int) -> None:
        """Take one micro-batch."""
        self._busy = True
        try:
            if self._closing.is_set():
                raise Closing("the query is being stopped; its next start begins with this batch")
            self._begun = number
            assert self._write is not None
            identity = running_id(self._folder)
            self._count_lost(number)
            if only_enters(self._folder, number):
                frame.write.format("noop").mode("append").save()  # no rows; but state begins with the first batch
                return
            self._write(frame, Batch(identity, number, self._may_be_repeated))
            self._may_be_repeated = False
        finally:
            self._busy = False

    def _count_lost(self, number: int) -> None:
        """Say what retention has removed of a batch that begins, as far as it is known."""
        lost = {}
        for start, end in spans(self._folder, number):
            for partition, count in removed(start, end, self.seen).items():
                lost[partition] = count
                said_so = lost_sentence(*partition, start.at(*partition) or 0, count)
                LOGGER.warning("query %s: %s; going on without them", self.plan.name, said_so)
        if lost or number in self._lost:
            self._lost[number] = sum(lost.values())

    def lost_to_retention(self) -> int:
        """Return how many offsets were gone before it came to them, in batches that are done."""
        if not self._lost:
            return 0
        commit = newest_commit(self._folder)
        return sum(count for number, count in self._lost.copy().items() if commit is not None and number <= commit)

    # ── watching ──

    def poll(self, now: float) -> None:
        """Look how it is, and start it again when it is time. It has failed for good when Spark is gone."""
        if self.state is State.RUNNING and self._running is not None:
            try:
                if self._running.isActive:
                    return
                problem = self._running.exception()
            except Exception as error:  # py4j has many for a JVM that does not answer; told by `error`
                self._gone(error)
                return
            if self._closing.is_set():
                self.state = State.STOPPED
            elif problem is not None:
                self._failed(problem, now)
            elif self._to_end:
                self.state = State.DONE
            else:
                self._failed(RuntimeError("it was stopped from outside"), now)
        elif self.state is State.WAITING and now >= self._again_at and not self._closing.is_set():
            try:
                self.start(to_end=self._to_end)
            except AnabranchError as error:
                self._failed(error.__cause__ or error, now)
            except Exception as error:  # as above
                self._gone(error)

    def _failed(self, problem: BaseException, now: float) -> None:
        commit = newest_commit(self._folder)
        self._failures = self._failures + 1 if commit == self._failed_after else 1
        self._failed_after = commit
        self.problem = said(problem)
        if is_final(problem) or self._failures >= ATTEMPTS_MAX:
            self.state = State.FAILED
            self.error = failure(self.plan.name, problem, self._failures)
            self.error.__cause__ = problem
            return
        self.state = State.WAITING
        pause_s = BACKOFF_S * 2.0 ** (self._failures - 1)
        self._again_at = now + pause_s
        LOGGER.warning("query %s failed: %s; trying again in %g s", self.plan.name, self.problem, pause_s)

    def _gone(self, error: Exception) -> None:
        self.state = State.FAILED
        self.problem = f"Spark does not answer any more ({type(error).__name__}): its JVM has ended, or was killed"
        self.error = failure(self.plan.name, Halted(self.problem), 1)
        self.error.__cause__ = error

    def _is_active(self) -> bool:
        """Tell whether Spark runs it; a Spark that is gone runs nothing."""
        try:
            return self._running is not None and bool(self._running.isActive)
        except Exception as error:  # as in `poll`
            if self.state in {State.RUNNING, State.WAITING}:
                self._gone(error)
            return False

    def positions(self) -> Positions | None:
        """Return how far it has committed in the topic of the outputs; None before its first batch."""
        found = (each for each in committed(self._folder) if self._outputs.topic in each.topics)
        return next(found, None)

    # ── stopping ──

    def close(self) -> None:
        """Begin no more batches. Never blocks."""
        self._closing.set()

    def is_quiet(self) -> bool:
        """Tell whether nothing would be torn apart if it were stopped now; call `close` before."""
        if not self._is_active():
            return True
        begun = self._begun
        commit = newest_commit(self._folder)
        return not self._busy and (begun is None or (commit is not None and commit >= begun))

    def stop(self) -> None:
        """Stop it, also in the middle of a batch, which its next start then repeats. May block for `STOP_S`."""
        self._closing.set()
        if self._is_active():
            # Spark waits for the user's function without a limit, and a function may hang.
            stopping = threading.Thread(target=self._stop, name=f"anabranch-stop-{self._name}", daemon=True)
            stopping.start()
            stopping.join(STOP_S)
        if self.state is not State.FAILED and self.state is not State.DONE:
            self.state = State.STOPPED

    def _stop(self) -> None:
        assert self._running is not None
        try:
            self._running.stop()
        except Exception as error:  # Spark is gone, or was too slow; what matters is what the checkpoint has
            LOGGER.warning("query %s could not be stopped: %s", self.plan.name, said(error))

    def __repr__(self) -> str:
        told: Any = f": {self.problem}" if self.problem else ""
        return f"<Query {self._name} {self.state.value}{told}>"
