"""The rows of one Spark task reach their topics in order and acknowledged, or the task fails with a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from source_topics import contents, new_topic, values_of

from anabranch.core.errors import PeerError, UsageError
from anabranch.kafka.admin import Admin
from anabranch.kafka.client import Connection
from anabranch.kafka.row_writer import RowWriter
from anabranch.kafka.settings import SinkSettings
from anabranch.spark.sink import check_columns, write_rows
from anabranch.spark.source_options import SinkOptions, sink_options

if TYPE_CHECKING:
    from anabranch import Broker

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def options(bootstrap: str, **more: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": bootstrap, **more})


def test_rows_keep_their_order_within_a_partition(anabranch_broker: Broker) -> None:
    """Several Arrow batches, one after the other, keys spread over partitions: per key nothing overtakes."""
    topic = new_topic(anabranch_broker.bootstrap, 4)
    batches = [
        pa.record_batch({"key": [f"key-{n % 10}" for n in each], "value": [str(n) for n in each]})
        for each in (range(5000), range(5000, 5000), range(5000, 9000))
    ]
    assert write_rows(options(anabranch_broker.bootstrap, topic=topic), iter(batches)).rows == 9000
    found = contents(anabranch_broker.bootstrap, topic)
    assert sorted(map(int, values_of(found))) == list(range(9000))
    for messages in found.values():
        numbers = [int(message.value()) for message in messages]
        assert numbers == sorted(numbers)
        assert numbers


def test_a_row_is_written_as_it_is(anabranch_broker: Broker) -> None:
    """Null key, null value, headers, a partition of its own, a topic of its own that is made on demand."""
    first, second = new_topic(anabranch_broker.bootstrap, 3), f"{new_topic(anabranch_broker.bootstrap)}-made"
    batch = pa.record_batch(
        {
            "topic": [first, second],
            "key": pa.array([None, b"k"], pa.binary()),
            "value": pa.array([b"\xff", None], pa.binary()),
            "partition": pa.array([2, None], pa.int32()),
            "headers": pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None], HEADERS),
            "offset": [7, 8],
        }
    )
    write_rows(options(anabranch_broker.bootstrap, partitions="1"), iter([batch]))
    (one,), (other,) = contents(anabranch_broker.bootstrap, first)[2], contents(anabranch_broker.bootstrap, second)[0]
    assert (one.key(), one.value(), one.headers()) == (None, b"\xff", [("a", b"1"), ("a", None)])
    assert (other.key(), other.value(), other.headers()) == (b"k", None, None)


def test_a_task_without_rows_writes_and_connects_to_nothing() -> None:
    """Empty partitions are common: they must not cost a connection."""
    assert write_rows(options("localhost:1", topic="none"), iter([])).rows == 0


def test_a_missing_topic_is_refused_where_none_are_made(anabranch_broker: Broker) -> None:
    """With what to do."""
    settings = SinkSettings(anabranch_broker.bootstrap, create_topics=False, refusal_s=0.1)
    writer = RowWriter(settings, outage_s=20)
    with pytest.raises(PeerError, match="no topic 'nowhere' to write to"):
        writer.write("nowhere", None, b"x", None, None)
    assert "nowhere" not in {topic.name for topic in Admin(Connection(anabranch_broker.bootstrap)).topics()}


def test_a_row_that_is_too_large_fails_with_a_sentence(anabranch_broker: Broker) -> None:
    """And what comes after it is not sent: the task is done again as a whole."""
    topic = new_topic(anabranch_broker.bootstrap, max_message_bytes="2000")
    writer = RowWriter(SinkSettings(anabranch_broker.bootstrap), outage_s=20)
    writer.write(topic, None, b"small", None, None)
    writer.flush()
    writer.write(topic, None, b"x" * 5000, None, None)
    with pytest.raises(PeerError, match=f"refused by topic {topic}.*raise max.message.bytes"):
        writer.flush()
    assert values_of(contents(anabranch_broker.bootstrap, topic)) == [b"small"]


def test_a_partition_that_is_not_there_fails_with_a_sentence(anabranch_broker: Broker) -> None:
    """It says how many there are."""
    topic = new_topic(anabranch_broker.bootstrap, 2)
    writer = RowWriter(SinkSettings(anabranch_broker.bootstrap), outage_s=20)
    writer.write(topic, None, b"x", None, 5)
    with pytest.raises(UsageError, match=f"topic {topic} has 2 partitions"):
        writer.flush()


def test_rows_that_nobody_acknowledges_fail_after_the_outage() -> None:
    """A task does not wait for ever."""
    writer = RowWriter(SinkSettings("127.0.0.1:1"), outage_s=0.3)
    with pytest.raises(PeerError, match=r"could not be found for 0\.3 s"):
        writer.write("orders", None, b"x", None, None)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("key string", "there is no column value"),
        ("value string, amount int", "column amount would not be written"),
        ("value int", r"column value is int, which cannot be written; use to_json"),
        ("value string, headers array<string>", "array<struct<key:string,value:binary>>"),
        ("value string, partition string", "cast it to int"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(schema: str, sentence: str) -> None:
    """Before the query runs."""
    with pytest.raises(UsageError, match=sentence):
        check_columns(struct(schema), options("localhost:1", topic="replies"))


def test_a_write_that_does_not_say_where_to_is_refused() -> None:
    """Either an option or a column names the topic."""
    with pytest.raises(UsageError, match="where to"):
        check_columns(struct("value string"), options("localhost:1"))
    check_columns(struct("value string, topic string"), options("localhost:1"))
    check_columns(struct("key binary, value binary, offset bigint"), options("localhost:1", topic="replies"))


def struct(text: str) -> StructType:
    """Read a schema without a session: names and types as Spark's JSON has them."""
    simple = {"int": "integer", "bigint": "long"}
    header = [
        {"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("key", "string"), ("value", "binary"))
    ]
    fields = []
    for each in text.split(", "):
        name, type_ = each.split(" ")
        kind: object = simple.get(type_, type_)
        if type_ == "array<string>":
            kind = {"type": "array", "elementType": "string", "containsNull": True}
        elif type_.startswith("array"):
            kind = {"type": "array", "elementType": {"type": "struct", "fields": header}, "containsNull": True}
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": {}})
    return StructType.fromJson({"type": "struct", "fields": fields})
