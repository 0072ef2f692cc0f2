"""What a handler may know about its record."""

from datetime import UTC, datetime

from pipeline_tasks import task

from anabranch import Context, Record
from anabranch.core.work import Task


def test_the_context_shows_the_record_and_the_call() -> None:
    """Everything of the record, and where the call stands."""
    on = task(b"v", headers=(("trace", b"1"),))
    on.attempt = 4
    ctx = Context(on, "charge", "resources", "cluster")
    assert (ctx.topic, ctx.partition, ctx.offset, ctx.key) == ("orders", 3, 7, b"k")
    assert (ctx.headers, ctx.attempt, ctx.step, ctx.resources) == ((("trace", b"1"),), 4, "charge", "resources")
    assert ctx.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert ctx.record is on.record
    assert repr(ctx) == "<Context orders/3@7 step=charge attempt=4>"


def test_a_record_without_a_time_has_none() -> None:
    """Kafka says -1 for it."""
    assert Context(Task(Record("orders", 0, 0, None, None), None, 1, 0, 0), "charge").timestamp is None


def test_the_context_keeps_its_attempt_when_the_task_goes_on() -> None:
    """A handler that kept its context does not see it change."""
    on = task()
    ctx = Context(on, "charge")
    on.attempt = 2
    assert ctx.attempt == 1


def test_the_request_id_is_the_same_for_every_attempt_and_replay() -> None:
    """It is the other side's idempotency key. The value is fixed here: a change would repeat effects in the field."""
    first, replay = task(b"v", topic_id="uuid"), task(b"other", key=b"other", topic_id="uuid")
    replay.attempt, replay.epoch = 9, 5
    ids = {Context(each, "charge", None, "cluster").request_id for each in (first, replay)}
    assert ids == {"123d9859e1e27fd942595aac8b0b5f0d"}


def test_the_request_id_differs_by_cluster_topic_partition_offset_and_step() -> None:
    """A topic that was deleted and made again has another id, so its records are others."""
    contexts = [
        Context(task(), "charge", None, "cluster"),
        Context(task(), "charge", None, "another"),
        Context(task(), "send", None, "cluster"),
        Context(task(topic="refunds"), "charge", None, "cluster"),
        Context(task(offset=8), "charge", None, "cluster"),
        Context(task(topic_id="uuid"), "charge", None, "cluster"),
        Context(task(topic_id="uuid-2"), "charge", None, "cluster"),
    ]
    assert len({ctx.request_id for ctx in contexts}) == len(contexts)


def test_the_topics_id_counts_rather_than_its_name() -> None:
    """Where the broker tells it."""
    ids = {Context(task(topic=topic, topic_id="uuid"), "charge").request_id for topic in ("a", "b")}
    assert len(ids) == 1
