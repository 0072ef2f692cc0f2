"""`format("anabranch")` as a sink and as a batch: what goes in comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import col, concat, expr, lit, spark_partition_id, when
from source_topics import contents, delete_records, fill, new_topic, values_of

from anabranch.spark import register

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from anabranch import Broker

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def read(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    return spark.read.format("anabranch").options(**given).load()


def test_a_batch_is_written_in_order_and_read_back(spark: SparkSession, anabranch_broker: Broker) -> None:
    """Each partition of the DataFrame is a task with a producer of its own; keys, headers and nulls arrive."""
    topic = new_topic(anabranch_broker.bootstrap, 3)
    frame = spark.range(0, 6000, 1, 4).select(
        concat(lit("key-"), (spark_partition_id() * 10 + col("id") % 7).cast("string")).alias("key"),
        when(col("id") != 5, col("id").cast("string")).alias("value"),
        expr("array(named_struct('key', 'origin', 'value', CAST('test' AS BINARY)))").alias("headers"),
    )
    sink = {"kafka.bootstrap.servers": anabranch_broker.bootstrap, "topic": topic}
    frame.write.format("anabranch").options(**sink).mode("append").save()
    rows = read(spark, anabranch_broker, topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert sorted(int(row.value) for row in rows if row.value is not None) == [n for n in range(6000) if n != 5]
    assert [row.value for row in rows if row.value is None] == [None]
    assert {(row.headers[0].key, bytes(row.headers[0].value)) for row in rows} == {("origin", b"test")}
    last: dict[bytes, int] = {}
    for row in rows:
        if row.value is not None:
            assert last.get(bytes(row.key), -1) < int(row.value)
            last[bytes(row.key)] = int(row.value)


def test_a_batch_reads_from_where_to_where_it_is_told(spark: SparkSession, anabranch_broker: Broker) -> None:
    """Offsets by partition, earliest and latest, a log that does not begin at 0, a topic without records."""
    topic = new_topic(anabranch_broker.bootstrap, 2)
    assert read(spark, anabranch_broker, topic).count() == 0
    fill(anabranch_broker.bootstrap, topic, [b"%d" % number for number in range(10)], 0)
    fill(anabranch_broker.bootstrap, topic, [b"%d" % number for number in range(10)], 1)
    delete_records(anabranch_broker.bootstrap, topic, before=4, partition=1)
    limits = {
        "startingOffsets": f'{{"{topic}": {{"0": 2}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 5, "1": -1}}}}',
    }
    rows = read(spark, anabranch_broker, topic, **limits).orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [(0, 2), (0, 3), (0, 4), *((1, at) for at in range(4, 10))]


def test_a_schema_of_fewer_columns_is_read_and_another_is_refused(
    spark: SparkSession, anabranch_broker: Broker
) -> None:
    """Columns are built by name; what no record has is refused before a task could fail of it."""
    topic = new_topic(anabranch_broker.bootstrap)
    fill(anabranch_broker.bootstrap, topic, [b"a", b"b"])
    given = {"kafka.bootstrap.servers": anabranch_broker.bootstrap, "subscribe": topic}
    reader = spark.read.format("anabranch").options(**given)
    rows = reader.schema("offset BIGINT, value BINARY").load().orderBy("offset").collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(0, b"a"), (1, b"b")]
    with pytest.raises(Exception, match="column value is binary, not string"):
        reader.schema("value STRING").load().collect()


def test_a_stream_is_copied_from_topic_to_topic_through_a_restart(
    spark: SparkSession, anabranch_broker: Broker, tmp_path: Path
) -> None:
    """What Spark committed is acknowledged; per partition the order stays."""
    first, second = new_topic(anabranch_broker.bootstrap, 2), new_topic(anabranch_broker.bootstrap, 2)
    source = {
        "kafka.bootstrap.servers": anabranch_broker.bootstrap,
        "subscribe": first,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "60",
    }
    sink = {"kafka.bootstrap.servers": anabranch_broker.bootstrap, "topic": second}
    for turn in range(2):
        for partition in range(2):
            fill(anabranch_broker.bootstrap, first, [b"%d" % (turn * 50 + number) for number in range(50)], partition)
        frame = spark.readStream.format("anabranch").options(**source).load().select("value", "partition")
        writer = frame.writeStream.format("anabranch").options(**sink).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination(120)
        copied = contents(anabranch_broker.bootstrap, second)
        expected = [b"%d" % number for number in range((turn + 1) * 50)]
        assert [[message.value() for message in copied[each]] for each in (0, 1)] == [expected, expected]


def test_a_write_that_cannot_be_is_refused_with_its_sentence(
    spark: SparkSession, anabranch_broker: Broker, tmp_path: Path
) -> None:
    """For a batch and for a stream, before any row is written."""
    topic = new_topic(anabranch_broker.bootstrap)
    sink = {"kafka.bootstrap.servers": anabranch_broker.bootstrap, "topic": topic}
    writer = spark.range(3).write.format("anabranch").options(**sink)
    with pytest.raises(Exception, match="there is no column value"):
        writer.mode("append").save()
    frame = spark.range(3).select(col("id").cast("string").alias("value"))
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        frame.write.format("anabranch").options(**sink).mode("overwrite").save()
    stream = spark.readStream.format("rate").load().select(col("value").cast("string"), lit(1).alias("amount"))
    query = stream.writeStream.format("anabranch").options(**sink).option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException, match="column amount would not be written"):
        query.start().awaitTermination(120)
    assert values_of(contents(anabranch_broker.bootstrap, topic)) == []
