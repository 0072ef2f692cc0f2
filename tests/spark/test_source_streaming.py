"""`format("anabranch")` as a stream: every offset once and in order, through restarts, outages and growth."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any

import contract_world
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from source_probe import ProbedSource, calls
from source_topics import add_partitions, delete_records, delete_topic, fill, new_topic

from anabranch import Broker
from anabranch.spark import register
from anabranch.spark.positions import restored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

IDLE_PROGRESS = "spark.sql.streaming.noDataProgressEventInterval"

DEADLINE_S = 120.0
"""Far above what anything here takes, also on a machine that is busy with something else."""

eventually = functools.partial(contract_world.eventually, deadline_s=DEADLINE_S)
pytestmark = pytest.mark.xdist_group("spark")


class Table:
    """Keeps the rows of every batch: a sink that a test can look into, and that fails when it is told to."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.fail = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self.fail:
            raise ZeroDivisionError
        self.batches[batch] = frame.select("partition", "offset", "value").collect()

    def offsets(self, partition: int = 0) -> list[int]:
        """Give the offsets of a partition in the order in which they came."""
        rows = [row for number in sorted(self.batches) for row in self.batches[number]]
        return [row.offset for row in rows if row.partition == partition]


class Query:
    """A query that can be started again on its checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> None:
        self.table = Table()
        self.options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        self.source = "anabranch"
        self._spark = spark
        self._folder = folder
        self._queries: list[StreamingQuery] = []

    def start(self, *, to_end: bool = False) -> StreamingQuery:
        frame = self._spark.readStream.format(self.source).options(**self.options).load()
        writer = frame.writeStream.foreachBatch(self.table).option(
            "checkpointLocation", str(self._folder / "checkpoint")
        )
        query = (writer.trigger(availableNow=True) if to_end else writer.trigger(processingTime="0 seconds")).start()
        self._queries.append(query)
        return query

    def run(self) -> StreamingQuery:
        """Read to the end."""
        query = self.start(to_end=True)
        assert query.awaitTermination(int(DEADLINE_S))
        return query

    def stop(self) -> None:
        for query in self._queries:
            with contextlib.suppress(StreamingQueryException):
                query.stop()


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> Iterator[None]:
    register(spark)
    cloudpickle.register_pickle_by_value(sys.modules[ProbedSource.__module__])
    spark.dataSource.register(ProbedSource)
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[ProbedSource.__module__])


@pytest.fixture
def topic(anabranch_broker: Broker) -> str:
    return new_topic(anabranch_broker.bootstrap, 2)


@pytest.fixture
def query(spark: SparkSession, anabranch_broker: Broker, topic: str, tmp_path: Path) -> Iterator[Query]:
    made = Query(spark, anabranch_broker.bootstrap, topic, tmp_path)
    yield made
    made.stop()


def numbers(start: int, end: int) -> Iterator[bytes]:
    return (b"%d" % number for number in range(start, end))


def test_available_now_reads_to_the_end_in_batches_and_goes_on_where_it_stopped(
    query: Query, anabranch_broker: Broker, topic: str
) -> None:
    """Not one batch, but as many as the limit makes of it, up to what there was when it began; a restart repeats and
    skips nothing; within a partition rows keep their order.
    """
    fill(anabranch_broker.bootstrap, topic, numbers(0, 25), 0)
    fill(anabranch_broker.bootstrap, topic, numbers(0, 5), 1)
    query.options["maxOffsetsPerTrigger"] = "10"
    query.run()
    assert query.table.offsets(0) == list(range(25))
    assert query.table.offsets(1) == list(range(5))
    sizes = [len(rows) for rows in query.table.batches.values()]
    assert sizes == [0, 10, 10, 10]  # where it begins is stored before anything is read
    fill(anabranch_broker.bootstrap, topic, numbers(25, 30), 0)
    query.run()
    assert query.table.offsets(0) == list(range(30))
    assert query.table.offsets(1) == list(range(5))


def test_the_facts_about_spark_that_the_source_rests_on(
    query: Query, anabranch_broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Seen through a diary of the calls:

    initialOffset is asked twice, and answered with a constant; planning happens in one process and reading in others;
    latestOffset is asked all the time when idle, and answered from memory; commit comes one batch late, and never for
    the last one, so nothing may depend on it; what is read is what was planned, once.
    """
    diary = tmp_path / "diary"
    query.source = "probed"
    query.options["diary"] = str(diary)
    query.start()
    eventually(lambda: 0 in query.table.batches, "the start")
    for turn in range(3):
        fill(anabranch_broker.bootstrap, topic, numbers(turn * 4, turn * 4 + 4))
        eventually(lambda turn=turn: len(query.table.offsets()) == turn * 4 + 4, f"the records of turn {turn}")
    before = calls(diary, "latestOffset")
    eventually(lambda: len(calls(diary, "latestOffset")) > len(before) + 100, "a hundred questions while idle")
    query.stop()

    assert len(calls(diary, "initialOffset")) == 2
    asked = calls(diary, "latestOffset")
    idle = [call for call in asked[len(before) :] if call["answer"] == call["start"]]
    assert len(idle) >= 100
    assert idle[-1]["looks"] - idle[0]["looks"] < len(idle) / 3
    planned = calls(diary, "partitions")
    assert {call["process"] for call in planned} == {call["process"] for call in asked}
    committed = [call["end"] for call in calls(diary, "commit")]
    assert committed == [call["end"] for call in planned[: len(committed)]]
    assert len(committed) < len(query.table.batches)
    read = calls(diary, "read")
    assert {call["process"] for call in read}.isdisjoint(call["process"] for call in asked)
    spans = sorted((call["start"], call["end"]) for call in read)
    assert [offset for start, end in spans for offset in range(start, end)] == list(range(12))


def test_what_comes_between_latest_and_a_crash_in_the_first_batch_is_read(
    query: Query, anabranch_broker: Broker, topic: str
) -> None:
    """Fault 5. `latest` is resolved once and stored: a query that starts again does not resolve it anew."""
    fill(anabranch_broker.bootstrap, topic, numbers(0, 5))
    query.options["startingOffsets"] = "latest"
    query.table.fail = True
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        query.run()
    fill(anabranch_broker.bootstrap, topic, numbers(5, 8))
    query.table.fail = False
    query.run()
    assert query.table.offsets() == [5, 6, 7]


def test_a_batch_that_failed_is_read_again_exactly(query: Query, anabranch_broker: Broker, topic: str) -> None:
    """What came after it was planned comes in the next one."""
    query.run()
    fill(anabranch_broker.bootstrap, topic, numbers(0, 5))
    query.table.fail = True
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        query.run()
    fill(anabranch_broker.bootstrap, topic, numbers(5, 8))
    query.table.fail = False
    query.run()
    assert [row.offset for row in query.table.batches[1]] == [0, 1, 2, 3, 4]
    assert [row.offset for row in query.table.batches[2]] == [5, 6, 7]


def test_partitions_that_are_added_are_read_from_their_beginning(
    query: Query, anabranch_broker: Broker, topic: str
) -> None:
    """While the query runs, under `latest`."""
    query.options["startingOffsets"] = "latest"
    query.start()
    eventually(lambda: 0 in query.table.batches, "the start")
    add_partitions(anabranch_broker.bootstrap, topic, 3)
    fill(anabranch_broker.bootstrap, topic, numbers(0, 6), 2)
    eventually(lambda: query.table.offsets(2) == list(range(6)), "the records of the new partition")


def test_a_checkpoint_of_another_topic_is_refused(query: Query, anabranch_broker: Broker, topic: str) -> None:
    """With a sentence that names both; and the checkpoint is as good as before."""
    fill(anabranch_broker.bootstrap, topic, numbers(0, 3))
    query.run()
    other = new_topic(anabranch_broker.bootstrap)
    query.options["subscribe"] = other
    with pytest.raises(StreamingQueryException, match=f"has positions of {topic}, and {other} is to be read"):
        query.run()
    query.options["subscribe"] = topic
    fill(anabranch_broker.bootstrap, topic, numbers(3, 5))
    query.run()
    assert query.table.offsets() == [0, 1, 2, 3, 4]


def test_a_topic_that_was_deleted_and_made_again_is_refused(query: Query, anabranch_broker: Broker, topic: str) -> None:
    """Its offsets mean other records: going on would skip the first ones of the new topic."""
    fill(anabranch_broker.bootstrap, topic, numbers(0, 3))
    query.run()
    delete_topic(anabranch_broker.bootstrap, topic)
    new_topic(anabranch_broker.bootstrap, 2, topic)
    fill(anabranch_broker.bootstrap, topic, numbers(100, 110))
    with pytest.raises(StreamingQueryException, match=f"topic {topic} is not the one .* deleted and made again"):
        query.run()
    assert query.table.offsets() == [0, 1, 2]


def test_a_topic_that_is_made_again_under_a_running_query_ends_it(
    query: Query, anabranch_broker: Broker, topic: str
) -> None:
    """Fewer records than before: the position lies beyond the end, and the id tells why."""
    fill(anabranch_broker.bootstrap, topic, numbers(0, 30))
    running = query.start()
    eventually(lambda: len(query.table.offsets()) == 30, "the first records")
    delete_topic(anabranch_broker.bootstrap, topic)
    new_topic(anabranch_broker.bootstrap, 2, topic)
    fill(anabranch_broker.bootstrap, topic, numbers(100, 103))
    with pytest.raises(StreamingQueryException, match="deleted and made again"):
        running.awaitTermination(int(DEADLINE_S))
    assert query.table.offsets() == list(range(30))


def test_retention_that_passed_the_query_halts_it_unless_told_otherwise(
    query: Query, anabranch_broker: Broker, topic: str
) -> None:
    """The sentence says how many are gone, and how to go on."""
    fill(anabranch_broker.bootstrap, topic, numbers(0, 3))
    query.run()
    fill(anabranch_broker.bootstrap, topic, numbers(3, 20))
    delete_records(anabranch_broker.bootstrap, topic, before=15)
    with pytest.raises(StreamingQueryException, match=f"{topic}/0: retention removed 12 offsets from 3 on"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert query.table.offsets() == [0, 1, 2, *range(15, 20)]


def test_an_outage_is_waited_for_and_reported_and_ends_the_query_only_when_it_lasts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Kafka errors are no errors of the query: it keeps its offset, shows the problem in its progress, goes on when
    the broker is back; and when it does not come back, the query fails with a sentence, and starts again cleanly.
    """
    spark.conf.set(IDLE_PROGRESS, "500ms")
    broker = Broker(tmp_path / "data")
    broker.start()
    bootstrap = broker.bootstrap
    topic = new_topic(bootstrap)
    query = Query(spark, bootstrap, topic, tmp_path)
    try:
        fill(bootstrap, topic, numbers(0, 3))
        running = query.start()
        eventually(lambda: query.table.offsets() == [0, 1, 2], "the first records")
        broker.stop()

        def problem() -> bool:
            progress = running.lastProgress
            return progress is not None and '"problem"' in str(progress.sources[0].latestOffset)

        eventually(problem, "the problem in the query's progress")
        assert running.isActive
        broker = Broker(tmp_path / "data", listen=bootstrap)
        broker.start()
        fill(bootstrap, topic, numbers(3, 5))
        eventually(lambda: query.table.offsets() == [0, 1, 2, 3, 4], "the records after the outage")
        running.processAllAvailable()  # the batch is committed, too: else its tasks would wait for the broker below
        query.stop()
        broker.stop()
        query.options["outageSeconds"] = "1"
        with pytest.raises(StreamingQueryException, match="Kafka has not answered for"):
            query.start().awaitTermination(int(DEADLINE_S))
        broker = Broker(tmp_path / "data", listen=bootstrap)
        broker.start()
        fill(bootstrap, topic, numbers(5, 6))
        query.run()
        assert query.table.offsets() == [0, 1, 2, 3, 4, 5]
    finally:
        spark.conf.unset(IDLE_PROGRESS)
        query.stop()
        broker.stop()


def test_a_new_query_without_a_topic_is_refused_soon(query: Query) -> None:
    """Someone mistyped a name and waits: seconds, not minutes."""
    query.options["subscribe"] = "no-such-topic"
    with pytest.raises(StreamingQueryException, match="no topic 'no-such-topic': create it with"):
        query.run()


def test_options_that_cannot_be_are_refused_with_their_sentence(spark: SparkSession, query: Query) -> None:
    """Spark shows what the source says."""
    query.options["startingOffset"] = "earliest"
    with pytest.raises(Exception, match="there is no option startingoffset for this read"):
        query.run()


def test_the_progress_of_a_query_is_positions_that_can_be_read_back(
    query: Query, anabranch_broker: Broker, topic: str
) -> None:
    """What a driver needs to show rows and lag."""
    fill(anabranch_broker.bootstrap, topic, numbers(0, 7))
    done = query.run()
    source = done.recentProgress[-1].sources[0]
    assert restored(source.endOffset).at(topic, 0) == 7
    assert restored(source.latestOffset).at(topic, 0) == 7


def test_a_batch_that_is_planned_and_cannot_be_read_any_more_ends_the_query_at_once(
    query: Query, anabranch_broker: Broker, topic: str
) -> None:
    """It was planned before a crash and its topic made again since: Spark would try its tasks a thousand times."""
    query.run()
    fill(anabranch_broker.bootstrap, topic, numbers(0, 5))
    query.table.fail = True
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        query.run()
    query.table.fail = False
    delete_topic(anabranch_broker.bootstrap, topic)
    new_topic(anabranch_broker.bootstrap, 2, topic)
    with pytest.raises(StreamingQueryException, match="deleted and made again"):
        query.run()
