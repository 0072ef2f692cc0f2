"""The queries of a run: started together, watched, and stopped, or run to the end of their topic.

A thread of its own looks after them a few times a second, so that `statistics` and `failed` answer from memory. How far
a query is stands in its checkpoint, which says the truth also when a batch is stuck or Spark is busy.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import AnabranchError
from anabranch.kafka.client import Connection
from anabranch.kafka.extents import Topics
from anabranch.kafka.lookout import Lookout
from anabranch.spark.output_topic import make_output_topic
from anabranch.spark.positions import ends_of, lag
from anabranch.spark.query import LOGGER, Query, State
from anabranch.spark.schema import shape_of
from anabranch.spark.stream import Outputs, kafka_texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from anabranch.kafka.extents import Seen
    from anabranch.pipeline.plan import Plan

POLL_S: Final = 0.2
LOOK_S: Final = 1.0
"""How often the ends of the topic are asked for."""
WHOLE_S: Final = 5.0
"""How often everything is: also what retention has removed."""
QUIET_S: Final = 10.0
"""How long a batch that has begun may take to end before it is torn apart."""
FOLDER: Final = "queries"


class Queries:
    """All queries of one run. Methods may be called from any thread; `start`, `run_to_end` and `stop` block."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        state_dir: Path,
        bootstrap: str,
        kafka: Mapping[str, Any] | None = None,
        *,
        on_lost_to_retention: str = "go on",
        on_beyond_end: str = "halt",
    ) -> None:
        """Remember what to do; nothing is made yet. Checkpoints go to `<state_dir>/queries/<name>`."""
        assert plan.sink_topic is not None
        self._spark = spark
        self._plan = plan
        halts = on_lost_to_retention == "halt"
        self._outputs = Outputs(plan.sink_topic, shape_of(plan.output_type), bootstrap, kafka_texts(kafka), halts)
        self._halts_beyond_end = on_beyond_end == "halt"
        self._queries = [
            Query(spark, plan.name, each, self._outputs, state_dir / FOLDER / each.name) for each in plan.queries
        ]
        self._lookout = Lookout(Connection(bootstrap, self._outputs.kafka), Topics((self._outputs.topic,)))
        self._lock = threading.RLock()
        self._seen: Seen = {}
        self._whole_at = float("-inf")
        self._before: dict[str, dict[int, int]] = {}
        self._ended = threading.Event()
        self._statistics: dict[str, Any] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start all of them, or none; raise UsageError or PeerError for what cannot be."""
        self._start(to_end=False)

    def statistics(self) -> dict[str, Any]:
        """Answer for each query by name: its state, rows since the start, lag, what was lost, and its last problem."""
        return self._statistics

    def failed(self) -> AnabranchError | None:
        """Return why a query has failed for good; None while all are well, or tried again."""
        return next((query.error for query in self._queries if query.error is not None), None)

    def run_to_end(self, timeout_s: float | None = None) -> bool:
        """Have all queries read what is in the topic now, started or not, then stop them; raise what one failed of.

        Waits for batches that run however long they take, until somebody calls `stop`. Answers whether all came to the
        end.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        if self.failed() is None and self._quiet(None) and self.failed() is None:  # Spark may have gone meanwhile
            self._start(to_end=True)
        while self._are_at_work() and not self._ended.wait(POLL_S):
            if until is not None and time.monotonic() > until:
                break
        error = self.failed()
        is_done = all(query.state is State.DONE for query in self._queries)
        self.stop()
        if error is not None:
            raise error
        return is_done

    def stop(self, catch_up_s: float = 0.0) -> None:
        """Stop all of them between two batches; before that give them a while to read what is there. Twice is fine."""
        until = time.monotonic() + catch_up_s
        while time.monotonic() < until and self.failed() is None and not self._ended.is_set() and self._is_behind():
            time.sleep(POLL_S)
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._quiet(QUIET_S)
        with self._lock:
            self._stop_all()
            self._tell()

    # ── inside ──

    def _start(self, *, to_end: bool) -> None:
        if self._thread is None:
            self._prepare()
        with self._lock:
            if self._ended.is_set():
                return
            try:
                for query in self._queries:
                    query.stop()
                    query.start(to_end=to_end)
            except BaseException:
                self._stop_all()
                raise
            self._tell()
        if self._thread is None:
            name = f"anabranch-queries-{self._plan.name}"
            self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
            self._thread.start()

    def _prepare(self) -> None:
        outputs = self._outputs
        make_output_topic(outputs.topic, outputs.bootstrap, outputs.kafka, self._plan.read.topics)
        self._seen = self._lookout.look()
        rows = outputs.frame(self._spark)  # one for all: each would cost Spark a Python process to look at its schema
        for query in self._queries:
            query.prepare(rows, self._seen, halts_beyond_end=self._halts_beyond_end)
            self._before[query.plan.name] = self._positions(query)

    def _are_at_work(self) -> bool:
        return any(query.state in {State.RUNNING, State.WAITING} for query in self._queries)

    def _watch(self) -> None:
        looked_at = time.monotonic()
        while not self._ended.wait(POLL_S):
            now = time.monotonic()
            with self._lock:
                for query in self._queries:
                    query.poll(now)
            if now - looked_at >= LOOK_S:
                looked_at = now
                self._look()
            self._tell()

    def _look(self) -> None:
        now = time.monotonic()
        whole = not self._seen or now - self._whole_at >= WHOLE_S
        try:
            self._seen = self._lookout.look() if whole else self._lookout.look_at_ends(self._seen)
        except AnabranchError as error:
            LOGGER.debug("the ends of %s are not known now: %s", self._outputs.topic, error)
            return
        self._whole_at = now if whole else self._whole_at
        for query in self._queries:
            query.seen = self._seen

    def _tell(self) -> None:
        self._statistics = {query.plan.name: self._told(query) for query in self._queries}

    def _told(self, query: Query) -> dict[str, Any]:
        before, positions = self._before.get(query.plan.name, {}), self._positions(query)
        lost = query.lost_to_retention()
        rows = sum(max(0, at - before.get(number, 0)) for number, at in positions.items()) - lost
        return {
            "state": query.state.value,
            "rows": rows,
            "lag": self._lag(query),
            "lost_to_retention": lost,
            "sink": query.plan.sink.label,
            "problem": query.problem if query.state in {State.WAITING, State.FAILED} else "",
        }

    def _positions(self, query: Query) -> dict[int, int]:
        """Return how far a query is; before its first batch, where it will begin."""
        positions = query.positions()
        if positions is not None:
            return dict(positions.topics[self._outputs.topic].partitions)
        seen = self._seen.get(self._outputs.topic)
        return {} if seen is None else dict(seen.log_starts)

    def _lag(self, query: Query) -> int | None:
        if not self._seen:
            return None
        ends = ends_of(self._seen)
        positions = query.positions()
        if positions is not None:
            return lag(positions, ends)
        at = self._positions(query)
        return sum(end - at.get(number, 0) for number, end in ends.topics[self._outputs.topic].partitions.items())

    def _is_behind(self) -> bool:
        self._look()
        return any(self._lag(query) for query in self._queries if query.state in {State.RUNNING, State.WAITING})

    def _quiet(self, patience_s: float | None) -> bool:
        """Have no batch begin, and wait for those that have begun: so long, or until stopped. Answer if they ended."""
        until = float("inf") if patience_s is None else time.monotonic() + patience_s
        for query in self._queries:
            query.close()
        while not all(query.is_quiet() for query in self._queries):
            if patience_s is None and self._ended.is_set():
                return False
            if time.monotonic() > until:
                LOGGER.warning("a batch of a query takes too long and is cut short; the next run begins with it")
                return False
            time.sleep(POLL_S / 4)
        return patience_s is not None or not self._ended.is_set()  # they may have ended because somebody stops them

    def _stop_all(self) -> None:
        for query in self._queries:
            query.stop()
