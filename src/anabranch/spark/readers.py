"""Read topics with Spark: micro-batches of a stream, or one batch.

`TopicStreamReader` lives three lives. In a Python process of its own beside the driver, one per query, Spark asks it
how far it may go and what a batch consists of (`latestOffset`, `partitions`, `commit`): there it has a watch. In a
planning process it is only made and pickled. In the workers of Spark tasks it reads ranges, with a consumer that the
worker keeps for the next task, whatever that reads: workers are reused, but not sticky.

An exception in the first life ends the query, so problems with Kafka are not raised there: the answer is the offset
that Spark already has, which means nothing new. Only when the outage has lasted for minutes it is raised. What no
waiting can mend (another topic, lost records) is raised at once.

`commit` comes one batch late and never for the last one; nothing here depends on it: progress is the checkpoint's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from anabranch.core.errors import PeerError, UsageError
from anabranch.spark.columns import batch_of
from anabranch.spark.positions import (
    NOTHING_YET,
    Positions,
    advance,
    beyond,
    check_ids,
    check_ranges,
    check_topics,
    ends_of,
    enter,
    ranges,
    restored,
)
from anabranch.spark.watch import LOGGER, Sight, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from anabranch.kafka.extents import Range, Seen
    from anabranch.kafka.ranges import RangeReader
    from anabranch.spark.source_options import SourceOptions

REACH_S: Final = 10.0
"""How long a query that has never read anything waits for Kafka: someone who mistyped an address is waiting, too."""
MISSING_S: Final = 2.0
"""How long it waits for a topic that is just being made."""
CHECK_S: Final = 1.0
READERS_MAX: Final = 4
"""How many consumers a worker keeps, for queries with different settings."""

_readers: dict[str, RangeReader] = {}


class RangePartition(InputPartition):
    """What one Spark task reads. Without a range: nothing."""

    def __init__(self, wanted: Range | None) -> None:
        """Carry a range to a worker."""
        super().__init__(wanted)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of micro-batches. The names of its methods are Spark's."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        """Prepare to read these columns; connects to nothing, since readers are made to be pickled."""
        self._options = options
        self._names = names
        self._watch: Watch | None = None
        self._target: Seen | None = None
        """With availableNow: what there was when the query began."""
        self._said: tuple[str, ...] = ()

    # Beside the driver.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 # Spark's name
        """Answer the same constant however often it is asked: where to begin is resolved with the first batch."""
        return NOTHING_YET.stored()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 # Spark's name
        """Answer how much a micro-batch may have."""
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 # Spark's name
        """Fix where the query ends."""
        sight = self._first_sight(self._watching())
        if sight.problem is not None or sight.seen is None:
            raise sight.problem or PeerError(f"Kafka did not answer within {REACH_S:g} s: start the query again")
        self._target = sight.seen

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 # Spark's name
        """Answer how far the next batch goes, from memory."""
        positions = restored(start)
        check_topics(positions, self._options.topics)
        seen = self._target
        if seen is None:
            sight = self._sight(positions)
            if sight.problem is not None or sight.seen is None:
                return start
            seen = sight.seen
        return self._next(positions, seen, limit).stored()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 # Spark's name
        """Answer where the topics end, and what the problem is if there is one, for the query's progress."""
        if self._watch is None:
            return None
        sight = self._watch.sight()
        found = {} if sight.seen is None else ends_of(sight.seen).stored()
        return {**found, "problem": str(sight.problem)} if sight.problem is not None else found or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Answer what the batch between two offsets consists of."""
        first, last = restored(start), restored(end)
        check_topics(last, self._options.topics)
        wanted = ranges(first, last)
        if wanted:
            self._check(wanted, last)
        return [RangePartition(each) for each in wanted]

    def stop(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.stop()

    # In the worker of a Spark task.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the records of one range."""
        return read_range(self._options, self._names, partition.value)

    def _watching(self) -> Watch:
        if self._watch is None:
            from anabranch.kafka.client import Connection
            from anabranch.kafka.lookout import Lookout

            connection = Connection(self._options.bootstrap, self._options.kafka)
            self._watch = Watch(Lookout(connection, self._options.topics))
        return self._watch

    def _check(self, wanted: Sequence[Range], last: Positions) -> None:
        """Raise now what the tasks would find out: Spark tries a task again and again, and says less."""
        sight = self._watching().look_now(CHECK_S)
        if sight.seen is None or sight.problem is not None:
            return  # the tasks wait for Kafka
        check_ids(last, sight.seen)
        if self._options.fail_on_data_loss:
            check_ranges(wanted, sight.seen)

    def _sight(self, positions: Positions) -> Sight:
        """Return what is known; raise if there has been a problem for too long."""
        watch = self._watching()
        sight = watch.sight() if positions.started else self._first_sight(watch)
        if sight.problem is None:
            if sight.seen is not None and not sight.whole and beyond(positions, sight.seen):
                return watch.look_now(REACH_S)  # a log that ends before our position: is it still the same topic?
            return sight
        if not positions.started:
            raise sight.problem
        if sight.problem_s > self._options.outage_s:
            raise PeerError(
                f"Kafka has not answered for {sight.problem_s:.0f} s: {sight.problem}. The query can be started again "
                "and goes on where it was"
            ) from sight.problem
        return sight

    def _first_sight(self, watch: Watch) -> Sight:
        sight = watch.look_now(MISSING_S)
        decided = isinstance(sight.problem, UsageError) or (sight.problem is None and sight.seen is not None)
        return sight if decided else watch.look_now(REACH_S - MISSING_S)

    def _next(self, positions: Positions, seen: Seen, limit: ReadLimit) -> Positions:
        check_ids(positions, seen)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        going = advance(positions, seen, rows_max, fail_on_data_loss=self._options.fail_on_data_loss)
        if going.notices != self._said:  # the same question is asked again until the batch has run
            self._said = going.notices
            for notice in going.notices:
                LOGGER.warning(notice)
        return enter(going.positions, seen, self._options.start)


class TopicReader(DataSourceReader):
    """Reads what is in topics now."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        """Prepare to read these columns; connects to nothing."""
        self._options = options
        self._names = names

    def partitions(self) -> Sequence[InputPartition]:
        """Look once, and fix what is read."""
        from anabranch.kafka.client import Connection
        from anabranch.kafka.lookout import Lookout

        options = self._options
        seen = Lookout(Connection(options.bootstrap, options.kafka), options.topics).look()
        begin, end = (enter(NOTHING_YET, seen, each) for each in (options.start, options.end))
        return [RangePartition(each) for each in ranges(begin, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the records of one range."""
        return read_range(self._options, self._names, partition.value)


def read_range(options: SourceOptions, names: Sequence[str], wanted: Range | None) -> Iterator[pa.RecordBatch]:
    """Give the records of a range as Arrow batches."""
    if wanted is not None:
        for rows in _reader(options).read(wanted, with_headers="headers" in names):
            yield batch_of(wanted, rows, names)


def _reader(options: SourceOptions) -> RangeReader:
    """Return this worker's reader for such options. A worker has one task at a time, so nobody else uses it."""
    from anabranch.kafka.client import Connection
    from anabranch.kafka.ranges import RangeReader

    name = repr((options.bootstrap, sorted(options.kafka.items()), options.fail_on_data_loss, options.outage_s))
    if name not in _readers:
        if len(_readers) >= READERS_MAX:
            _readers.pop(next(iter(_readers))).close()
        _readers[name] = RangeReader(
            Connection(options.bootstrap, options.kafka),
            patience_s=options.outage_s,
            go_on_after_loss=not options.fail_on_data_loss,
        )
    return _readers[name]
