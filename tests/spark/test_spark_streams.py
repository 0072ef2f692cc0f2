"""`stream(spark)`: the outputs as a DataFrame, read in any way; no handler runs because of it (fault 24)."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from query_world import QueryWorld, Receipt
from source_topics import delete_topic, new_topic

from anabranch import BrokerUnreachable, UsageError
from anabranch.spark import output_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from anabranch import Broker

pytestmark = pytest.mark.xdist_group("spark")

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_streams.py"


@pytest.fixture
def world(spark: SparkSession, anabranch_broker: Broker, tmp_path: Path) -> Iterator[QueryWorld]:
    made = QueryWorld(spark, anabranch_broker.bootstrap, tmp_path)
    yield made
    made.close()


@pytest.fixture
def example(anabranch_broker: Broker) -> Iterator[Any]:
    """The example as a module, with the topics that it names."""
    topics = ("orders", "receipts")
    for topic in topics:
        new_topic(anabranch_broker.bootstrap, 1, topic)
    spec = importlib.util.spec_from_file_location("spark_streams", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["spark_streams"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["spark_streams"]
    for topic in topics:
        delete_topic(anabranch_broker.bootstrap, topic)


def test_a_stream_is_joined_with_a_table_windowed_and_joined_with_itself(
    spark: SparkSession, anabranch_broker: Broker, example: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The example, each of its three ways in ten lines at most; the handler has run once for each order."""
    bootstrap = anabranch_broker.bootstrap
    example.send_orders(bootstrap)
    assert example.billing.run(engine="async", bootstrap=bootstrap, until="end", state_dir=tmp_path) == 0
    assert sorted(example.CALLS) == [0, 1, 2, 3, 4, 5]
    example.show(spark, bootstrap)
    assert capsys.readouterr().out.splitlines() == [
        *("--- with a table", "0 ann Bern", "1 bob Oslo", "2 ann Bern", "3 eve None", "4 bob Oslo", "5 ann Bern"),
        *("--- by hour", "9 ann 770", "9 bob 210", "9 eve 100", "10 ann 90", "10 bob 500"),
        *("--- soon after another", "ann 0 2"),
    ]
    assert len(example.CALLS) == 6
    for way in ("with_cities", "by_hour", "soon_after"):
        code = EXAMPLE.read_text().partition(f"def {way}")[2].partition("\n\n\n")[0]
        assert len(code.splitlines()) <= 10


def test_a_stream_limited_counted_twice_and_read_by_two_queries_runs_no_handler(
    world: QueryWorld, tmp_path: Path
) -> None:
    """Fault 24: with handlers inside a source, each of these would call them again, some of them at once."""
    calls: list[bytes] = []

    async def count(value: bytes) -> Receipt:
        calls.append(value)
        return Receipt(int(value), 1)

    pipeline = world.pipeline(count).write(f"{world.group}.out")
    world.put([b"%d" % n for n in range(40)], world.source)
    assert pipeline.run(engine="async", bootstrap=world.bootstrap, until="end", state_dir=tmp_path) == 0
    assert len(calls) == 40
    stream = pipeline.stream(world.spark, bootstrap=world.bootstrap)
    counts: list[int] = []

    def count_twice(batch: DataFrame, _: int) -> None:
        threads = [threading.Thread(target=lambda: counts.append(batch.count())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    at_once = [
        stream.writeStream.foreachBatch(count_twice).trigger(availableNow=True).start(),
        stream.union(stream).writeStream.format("memory").queryName("both").trigger(availableNow=True).start(),
    ]
    for query in at_once:
        query.awaitTermination()
    stream.limit(5).writeStream.format("memory").queryName("limited").trigger(
        availableNow=True
    ).start().awaitTermination()
    assert world.spark.table("limited").count() == 5
    assert counts[-2:] == [40, 40]
    assert world.spark.table("both").count() == 80
    assert len(calls) == 40


def test_a_stream_may_be_made_before_anything_has_run(world: QueryWorld) -> None:
    """Its topic is made, with as many partitions as the source has; a stream of what transforms give has them, too."""
    pipeline = world.pipeline().write(f"{world.group}.out")
    stream = pipeline.transform(lambda frame: frame.select("order")).stream(world.spark, bootstrap=world.bootstrap)
    assert stream.columns == ["order"]
    world.put([{"order": 7, "cents": 1}], f"{world.group}.out")
    assert [row.order for row in rows_of(stream)] == [7]


def test_a_schema_given_to_a_stream_is_used(world: QueryWorld) -> None:
    """Where the handler does not say what it returns, or says too little."""
    pipeline = world.pipeline(lambda value: value).write(f"{world.group}.out")
    assert pipeline.stream(world.spark, bootstrap=world.bootstrap).dtypes[0] == ("value", "binary")
    stream = pipeline.stream(world.spark, bootstrap=world.bootstrap, schema="cents INT")
    assert stream.dtypes[0] == ("cents", "int")


def test_what_cannot_be_a_stream_is_refused(world: QueryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sentence, before any query starts."""
    monkeypatch.setattr(output_topic, "REACH_S", 0.1)
    pipeline = world.pipeline().write(f"{world.group}.out")
    options: dict[str, Any] = {"bootstrap": world.bootstrap}
    with pytest.raises(UsageError, match="give a SparkSession"):
        pipeline.stream(None, **options)  # type: ignore[arg-type]  # meant
    with pytest.raises(UsageError, match="'earliest' or 'latest'"):
        pipeline.stream(world.spark, start="committed", **options)  # type: ignore[arg-type]  # meant
    with pytest.raises(UsageError, match=r"transform\(<lambda>\): .*the rows have order, cents, topic"):
        pipeline.transform(lambda frame: frame.select("nothing")).stream(world.spark, **options)
    with pytest.raises(UsageError, match="returned a NoneType; return the DataFrame"):
        pipeline.transform(lambda frame: None).stream(world.spark, **options)  # type: ignore[arg-type,return-value]  # meant
    with pytest.raises(UsageError, match="does not stream"):
        pipeline.transform(lambda frame: world.spark.range(1)).stream(world.spark, **options)
    with pytest.raises(BrokerUnreachable, match="start a broker"):
        pipeline.stream(world.spark, bootstrap="127.0.0.1:1")


def rows_of(frame: DataFrame) -> list[Any]:
    query = frame.writeStream.format("memory").queryName("rows").trigger(availableNow=True).start()
    query.awaitTermination()
    return frame.sparkSession.table("rows").collect()
