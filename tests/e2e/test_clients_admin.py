"""Administration and positions through unmodified clients: what other brokers got wrong, and clients noticed."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewPartitions, NewTopic
from foreign_clients import kafka
from raw_client import RawClient, batch_of

from anabranch import Broker
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.records import Record, build_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 15.0


@pytest.fixture
def admin(anabranch_broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": anabranch_broker.bootstrap})


@pytest.fixture
def client(anabranch_broker: Broker) -> Iterator[RawClient]:
    with RawClient(anabranch_broker.bootstrap) as connected:
        yield connected


@pytest.fixture(scope="module")
def frugal_broker() -> Iterator[Broker]:
    """A broker that creates no topic unasked."""
    with Broker(auto_create=False) as broker:
        yield broker


def _consumer(broker: Broker, **settings: Any) -> Any:
    plain = {"group.id": secrets.token_hex(6), "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    return confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, **plain, **settings})


def _code(futures: dict[str, Any]) -> str:
    """The name of the error with which the one future of an administrative request ends."""
    (future,) = futures.values()
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        future.result(WAIT_S)
    return str(raised.value.args[0].name())


# Positions


def test_watermarks_are_the_ends_of_the_log(anabranch_broker: Broker, anabranch_topic: str, client: RawClient) -> None:
    """Low and high of an empty, a filled and a shortened partition, as each client asks for them."""
    client.produce(anabranch_topic, batch_of([b"x"] * 7), partition=1)
    consumer = _consumer(anabranch_broker)
    try:
        partition = confluent_kafka.TopicPartition(anabranch_topic, 1)
        assert consumer.get_watermark_offsets(partition, WAIT_S) == (0, 7)
        assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(anabranch_topic, 2), WAIT_S) == (0, 0)
    finally:
        consumer.close()
    other = kafka.KafkaConsumer(bootstrap_servers=anabranch_broker.bootstrap)
    parts = [kafka.TopicPartition(anabranch_topic, number) for number in (1, 2)]
    assert other.beginning_offsets(parts) == dict.fromkeys(parts, 0)
    assert other.end_offsets(parts) == dict(zip(parts, (7, 0), strict=True))
    other.close()


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"old"), ("latest", b"new")])
def test_the_reset_policy_decides_where_a_new_group_starts(
    anabranch_broker: Broker, anabranch_topic: str, client: RawClient, reset: str, expected: bytes
) -> None:
    """Without a commit `earliest` starts at the first record, `latest` at what comes after it has asked."""
    client.produce(anabranch_topic, batch_of([b"old"]))
    consumer = _consumer(anabranch_broker, **{"auto.offset.reset": reset})
    try:
        consumer.assign([confluent_kafka.TopicPartition(anabranch_topic, 0)])
        if reset == "latest":
            partition = confluent_kafka.TopicPartition(anabranch_topic, 0)
            while consumer.position([partition])[0].offset < 0 and not _at_end(consumer, partition):
                consumer.poll(0.05)
            client.produce(anabranch_topic, batch_of([b"new"]))
        message = consumer.poll(WAIT_S)
        assert (message.error(), message.value()) == (None, expected)
    finally:
        consumer.close()


def _at_end(consumer: Any, partition: Any) -> bool:
    """Whether the consumer has resolved `latest`: it then knows the high watermark from a fetch."""
    low, high = consumer.get_watermark_offsets(partition, cached=True)
    return bool(low >= 0 and high >= 1)


def test_an_offset_out_of_range_is_reset_by_policy(
    anabranch_broker: Broker, anabranch_topic: str, client: RawClient
) -> None:
    """A consumer that asks beyond the end goes where its policy says; with `error` it is told."""
    client.produce(anabranch_topic, batch_of([b"first", b"second"]))
    for policy in ("earliest", "error"):
        consumer = _consumer(anabranch_broker, **{"auto.offset.reset": policy})
        try:
            consumer.assign([confluent_kafka.TopicPartition(anabranch_topic, 0, 1000)])
            message = consumer.poll(WAIT_S)
            if policy == "earliest":
                assert message.value() == b"first"
            else:
                assert message.error().code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET
        finally:
            consumer.close()


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_offsets_by_time_find_the_first_record_not_before_it(
    anabranch_broker: Broker, anabranch_topic: str, client: RawClient, compression: str
) -> None:
    """Inside a compressed batch too, and with times that are not sorted: the first *record* at or after the time."""
    times = [[1000, 1010, 1020], [2000, 1990, 2050], [3000]]
    for batch in times:
        records = [Record(timestamp=time, value=b"x") for time in batch]
        client.produce(anabranch_topic, build_batch(records, compression=compression))
    asked = {0: 0, 1000: 0, 1001: 1, 1020: 2, 1021: 3, 1995: 3, 2001: 5, 2051: 6, 3000: 6, 3001: -1}
    assert {time: client.offset_for(anabranch_topic, time).offset for time in asked} == asked
    newest = client.offset_for(anabranch_topic, -3)
    assert (newest.offset, newest.timestamp) == (6, 3000)
    consumer = _consumer(anabranch_broker)
    try:
        wanted = [confluent_kafka.TopicPartition(anabranch_topic, 0, time) for time in (1001, 9999)]
        found = [consumer.offsets_for_times([one], WAIT_S)[0].offset for one in wanted]
        assert found == [1, confluent_kafka.OFFSET_END]
    finally:
        consumer.close()
    other = kafka.KafkaConsumer(bootstrap_servers=anabranch_broker.bootstrap)
    part = kafka.TopicPartition(anabranch_topic, 0)
    assert other.offsets_for_times({part: 1021})[part].offset == 3
    assert other.offsets_for_times({part: 9999})[part] is None
    other.close()


def test_a_consumer_that_starts_inside_a_batch_gets_the_rest_of_it(
    anabranch_broker: Broker, anabranch_topic: str, client: RawClient
) -> None:
    """Every client skips the records before its position; none misses one or sees one twice."""
    client.produce(anabranch_topic, batch_of([b"0", b"1", b"2", b"3"], compression="gzip"))
    consumer = _consumer(anabranch_broker)
    consumer.assign([confluent_kafka.TopicPartition(anabranch_topic, 0, 2)])
    assert [consumer.poll(WAIT_S).value() for _ in range(2)] == [b"2", b"3"]
    consumer.close()
    other = kafka.KafkaConsumer(bootstrap_servers=anabranch_broker.bootstrap, consumer_timeout_ms=WAIT_S * 1000)
    part = kafka.TopicPartition(anabranch_topic, 0)
    other.assign([part])
    other.seek(part, 2)
    assert [next(other).value for _ in range(2)] == [b"2", b"3"]
    other.close()

    async def read() -> list[bytes]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        third = AIOKafkaConsumer(bootstrap_servers=anabranch_broker.bootstrap)
        await third.start()
        try:
            third.assign([TopicPartition(anabranch_topic, 0)])
            third.seek(TopicPartition(anabranch_topic, 0), 2)
            return [(await asyncio.wait_for(third.getone(), WAIT_S)).value for _ in range(2)]
        finally:
            await third.stop()

    assert asyncio.run(read()) == [b"2", b"3"]


def test_commit_metadata_comes_back_through_clients(
    anabranch_broker: Broker, anabranch_topic: str, client: RawClient
) -> None:
    """What a client stores with its offset is read by another one, to the byte.

    confluent-kafka is compared with itself: it sends the zero byte that ends its text, and reads up to the next one, so
    that the text of another client has no end for it.
    """
    client.produce(anabranch_topic, batch_of([b"x"] * 9))
    group, text = secrets.token_hex(6), "bis hier: ✓" * 100
    part = kafka.TopicPartition(anabranch_topic, 0)
    writer = kafka.KafkaConsumer(bootstrap_servers=anabranch_broker.bootstrap, group_id=group)
    writer.assign([part])
    writer.commit({part: kafka.OffsetAndMetadata(4, text, -1)})
    assert writer.committed(part, metadata=True).metadata == text
    writer.close(autocommit=False)
    assert client.committed(group, anabranch_topic) == (4, text)
    consumer = _consumer(anabranch_broker)
    consumer.commit(offsets=[confluent_kafka.TopicPartition(anabranch_topic, 0, 5, text)], asynchronous=False)
    found = consumer.committed([confluent_kafka.TopicPartition(anabranch_topic, 0)], WAIT_S)[0]
    assert (found.offset, found.metadata) == (5, text)
    consumer.close()


# Topics


def test_deleting_records_moves_the_low_watermark(
    anabranch_broker: Broker, anabranch_topic: str, admin: AdminClient, client: RawClient
) -> None:
    """Records below the offset are gone, reads of them are out of range, and the end stays where it is."""
    client.produce(anabranch_topic, batch_of([b"x"] * 10))
    partition = confluent_kafka.TopicPartition(anabranch_topic, 0, 4)
    (result,) = admin.delete_records([partition]).values()
    assert result.result(WAIT_S).low_watermark == 4
    assert client.fetch(anabranch_topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.offset for record in client.read_all(anabranch_topic, offset=4)] == [4, 5, 6, 7, 8, 9]
    (beyond,) = admin.delete_records([confluent_kafka.TopicPartition(anabranch_topic, 0, 11)]).values()
    with pytest.raises(confluent_kafka.KafkaException):
        beyond.result(WAIT_S)
    whole = confluent_kafka.TopicPartition(anabranch_topic, 0, confluent_kafka.OFFSET_END)
    (all_gone,) = admin.delete_records([whole]).values()
    assert all_gone.result(WAIT_S).low_watermark == 10
    assert client.produce(anabranch_topic, batch_of([b"next"])).base_offset == 10


def test_partitions_can_be_added_and_not_taken_away(
    anabranch_topic: str, admin: AdminClient, client: RawClient
) -> None:
    """The new ones are empty and can be written at once; fewer, or as many as there are, is INVALID_PARTITIONS."""
    client.produce(anabranch_topic, batch_of([b"old"]))
    (grown,) = admin.create_partitions([NewPartitions(anabranch_topic, 6)]).values()
    assert grown.result(WAIT_S) is None
    assert len(client.describe_topic(anabranch_topic).partitions) == 6
    assert client.produce(anabranch_topic, batch_of([b"new"]), partition=5).base_offset == 0
    assert [record.value for record in client.read_all(anabranch_topic)] == [b"old"]
    for count in (6, 2):
        assert _code(admin.create_partitions([NewPartitions(anabranch_topic, count)])) == "INVALID_PARTITIONS"
    assert _code(admin.create_partitions([NewPartitions("no-such-topic", 6)])) == "UNKNOWN_TOPIC_OR_PART"


def test_a_deleted_topic_is_gone_and_its_name_is_free(
    anabranch_broker: Broker, anabranch_topic: str, admin: AdminClient, client: RawClient
) -> None:
    """Deleted: unknown to everybody, its commits gone. Made again: another id, empty, from offset 0."""
    client.produce(anabranch_topic, batch_of([b"old"] * 3))
    client.commit("reader-of-deleted", anabranch_topic, 3)
    old = client.describe_topic(anabranch_topic).topic_id
    (deleted,) = admin.delete_topics([anabranch_topic], operation_timeout=WAIT_S).values()
    assert deleted.result(WAIT_S) is None
    assert client.describe_topic(anabranch_topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce(anabranch_topic, batch_of([b"x"])).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _code(admin.delete_topics([anabranch_topic])) == "UNKNOWN_TOPIC_OR_PART"
    (made,) = admin.create_topics([NewTopic(anabranch_topic, 1, 1)]).values()
    assert made.result(WAIT_S) is None
    assert client.describe_topic(anabranch_topic).topic_id != old
    assert client.committed("reader-of-deleted", anabranch_topic)[0] == -1
    assert client.produce(anabranch_topic, batch_of([b"new"])).base_offset == 0


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad-config", 1, 1, config={"no.such.config": "1"}), "INVALID_CONFIG"),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
        (NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}), "INVALID_CONFIG"),
        (NewTopic("replicated", 1, 3), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("__consumer_offsets", 1, 1), "TOPIC_ALREADY_EXISTS"),
        (NewTopic("a/b", 1, 1), "TOPIC_EXCEPTION"),
    ],
    ids=lambda value: value.topic if isinstance(value, NewTopic) else value,
)
def test_a_topic_that_cannot_be_made_is_refused(admin: AdminClient, client: RawClient, topic: Any, code: str) -> None:
    """Kafka's code with a sentence, and nothing is made."""
    assert _code(admin.create_topics([topic])) == code
    if code in {"INVALID_CONFIG", "INVALID_REPLICATION_FACTOR"}:
        assert client.describe_topic(topic.topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_that_only_asks_makes_nothing(admin: AdminClient, client: RawClient) -> None:
    """validate_only: the answer is that of the real request, the topic is not there."""
    (asked,) = admin.create_topics([NewTopic("only-asked", 3, 1)], validate_only=True).values()
    assert asked.result(WAIT_S) is None
    assert client.describe_topic("only-asked").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_configs_are_described_with_defaults_and_sources(admin: AdminClient) -> None:
    """Every config is listed with the value in force; what the topic set is its own, the rest a default."""
    name = f"configured-{secrets.token_hex(4)}"
    admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": "12345"})])[name].result(WAIT_S)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    (future,) = admin.describe_configs([resource]).values()
    configs = future.result(WAIT_S)
    assert configs["retention.ms"].value == "12345"
    assert configs["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default
    assert configs["max.message.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert all(config.value is not None for config in configs.values())
    (missing,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "no-such-topic")]).values()
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        missing.result(WAIT_S)
    assert raised.value.args[0].name() == "UNKNOWN_TOPIC_OR_PART"


# Writing where one cannot


def _delivery_error(bootstrap: str, topic: str, value: bytes = b"x", **settings: Any) -> str | None:
    plain = {"bootstrap.servers": bootstrap, "message.max.bytes": 5_000_000, "message.timeout.ms": 8000}
    producer = confluent_kafka.Producer({**plain, **settings})
    names: list[str | None] = []
    try:
        producer.produce(topic, value, on_delivery=lambda error, _: names.append(error.name() if error else None))
    except confluent_kafka.KafkaException as error:
        return str(error.args[0].name())
    assert producer.flush(WAIT_S) == 0
    return names[0]


def test_a_record_larger_than_the_topic_allows_is_refused(anabranch_broker: Broker, admin: AdminClient) -> None:
    """max.message.bytes is enforced per topic with MSG_SIZE_TOO_LARGE; the size that counts is the compressed one."""
    name = f"small-{secrets.token_hex(4)}"
    admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "2000"})])[name].result(WAIT_S)
    assert _delivery_error(anabranch_broker.bootstrap, name, b"x" * 3000) == "MSG_SIZE_TOO_LARGE"
    assert _delivery_error(anabranch_broker.bootstrap, name, b"x" * 1500) is None
    assert _delivery_error(anabranch_broker.bootstrap, name, b"x" * 3000, **{"compression.type": "gzip"}) is None


def test_a_topic_is_created_when_it_is_first_written(anabranch_broker: Broker, client: RawClient) -> None:
    """With auto_create (the default) a producer needs no administrator; partitions are the broker's default."""
    name = f"unasked-{secrets.token_hex(4)}"
    assert _delivery_error(anabranch_broker.bootstrap, name) is None
    assert len(client.describe_topic(name).partitions) == 4


def test_an_unknown_topic_is_refused_when_topics_are_not_created(frugal_broker: Broker) -> None:
    """auto_create off: UNKNOWN_TOPIC_OR_PART to producers and consumers, and no topic comes of asking."""
    settings = {"topic.metadata.propagation.max.ms": 100}
    error = _delivery_error(frugal_broker.bootstrap, "unknown", **settings)
    assert error in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"}
    consumer = _consumer(frugal_broker, **{"allow.auto.create.topics": True})
    consumer.subscribe(["unknown"])
    message = consumer.poll(WAIT_S)
    assert message.error().name() == "UNKNOWN_TOPIC_OR_PART"
    consumer.close()
    with RawClient(frugal_broker.bootstrap) as client:
        described = client.describe_topic("unknown", may_create=True)
        assert described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_is_not_there_is_refused(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """A wrong partition number is an error of its own: nothing is written elsewhere."""
    producer = confluent_kafka.Producer({"bootstrap.servers": anabranch_broker.bootstrap})
    producer.list_topics(anabranch_topic, timeout=WAIT_S)
    names: list[str] = []
    try:
        producer.produce(anabranch_topic, b"x", partition=99, on_delivery=lambda error, _: names.append(error.name()))
        producer.flush(WAIT_S)
    except confluent_kafka.KafkaException as error:
        names.append(error.args[0].name())
    assert names == ["_UNKNOWN_PARTITION"]
    with RawClient(anabranch_broker.bootstrap) as client:
        refused = client.produce(anabranch_topic, batch_of([b"x"]), partition=99)
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.fetch(anabranch_topic, 0, partition=99).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.offset_for(anabranch_topic, -1, partition=99).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_log_append_time_replaces_the_producers_time(
    anabranch_broker: Broker, admin: AdminClient, client: RawClient
) -> None:
    """message.timestamp.type=LogAppendTime: consumers see when the broker appended, and the batch's CRC is right."""
    name = f"stamped-{secrets.token_hex(4)}"
    config = {"message.timestamp.type": "LogAppendTime"}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(WAIT_S)
    appended = client.produce(name, batch_of([b"x", b"y"], timestamp=5, compression="lz4"))
    assert appended.log_append_time_ms > 1_600_000_000_000
    consumer = _consumer(anabranch_broker, **{"check.crcs": True})
    consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
    stamps = [consumer.poll(WAIT_S).timestamp() for _ in range(2)]
    consumer.close()
    assert stamps == [(confluent_kafka.TIMESTAMP_LOG_APPEND_TIME, appended.log_append_time_ms)] * 2
