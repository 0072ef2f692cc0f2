"""The options of `format("anabranch")`: what cannot be is refused with a sentence."""

from __future__ import annotations

import pytest

from anabranch.core.errors import UsageError
from anabranch.core.work import TopicPartition
from anabranch.kafka.extents import Topics
from anabranch.spark.positions import EARLIEST, LATEST, Start
from anabranch.spark.source_options import sink_options, source_options

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}


def test_a_stream_begins_at_latest_and_a_batch_at_earliest_as_with_sparks_own_source() -> None:
    """The defaults are those that people know."""
    stream = source_options({**BROKER, "subscribe": "orders"}, streaming=True)
    batch = source_options({**BROKER, "subscribe": "orders"}, streaming=False)
    assert (stream.start, batch.start, batch.end) == (Start(LATEST), Start(EARLIEST), Start(LATEST))
    assert stream.fail_on_data_loss
    assert not stream.headers
    assert stream.rows_max is None


def test_options_are_read_whatever_their_case() -> None:
    """Spark hands them over in lower case."""
    given = {
        "KAFKA.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "SSL",
        "subscribe": " orders, returns,orders ",
        "maxoffsetspertrigger": "500",
        "startingoffsets": '{"orders": {"0": 42, "1": -2}}',
        "FailOnDataLoss": "FALSE",
        "includeHeaders": "true",
        "outageSeconds": "60",
    }
    options = source_options(given, streaming=True)
    assert options.bootstrap == "a:1,b:2"
    assert options.kafka == {"security.protocol": "SSL"}
    assert options.topics == Topics(("orders", "returns"))
    assert options.start.partitions == {TopicPartition("orders", 0): 42, TopicPartition("orders", 1): EARLIEST}
    assert (options.rows_max, options.fail_on_data_loss, options.headers, options.outage_s) == (500, False, True, 60)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "give either option subscribe"),
        ({"subscribe": "a", "subscribePattern": "b"}, "give either option subscribe"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "is no pattern"),
        ({"subscribe": "a", "startingOffsets": "yesterday"}, "allowed is earliest, latest, or offsets"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "allowed is earliest, latest, or offsets"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "a whole number from 1 on"),
        ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "allowed is true or false"),
        ({"subscribe": "a", "startingOffset": "latest"}, "there is no option startingoffset for this read"),
        ({"subscribe": "a", "endingOffsets": "latest"}, "availableNow"),
    ],
)
def test_what_cannot_be_read_is_refused(given: dict[str, str], sentence: str) -> None:
    """With what is allowed instead."""
    with pytest.raises(UsageError, match=sentence):
        source_options({**BROKER, **given}, streaming=True)


def test_a_read_without_a_broker_is_refused() -> None:
    """The commonest mistake."""
    with pytest.raises(UsageError, match=r"kafka\.bootstrap\.servers is missing"):
        source_options({"subscribe": "orders"}, streaming=True)


@pytest.mark.parametrize("given", [{"startingOffsets": "latest"}, {"endingOffsets": "earliest"}])
def test_a_batch_that_reads_nothing_is_refused(given: dict[str, str]) -> None:
    """It would look like an empty topic."""
    with pytest.raises(UsageError, match="reads nothing"):
        source_options({**BROKER, "subscribe": "orders", **given}, streaming=False)


def test_the_sinks_options_are_its_own() -> None:
    """What Spark adds for itself is let through; what only a read has is refused."""
    options = sink_options({**BROKER, "topic": "replies", "checkpointlocation": "/x", "partitions": "3"})
    assert (options.topic, options.create_topics, options.partitions) == ("replies", True, 3)
    with pytest.raises(UsageError, match="there is no option subscribe for this write"):
        sink_options({**BROKER, "subscribe": "orders"})
