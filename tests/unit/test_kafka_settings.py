"""What source and sink may be told, and what follows from it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from anabranch.core.errors import UsageError
from anabranch.kafka.settings import SinkSettings, SourceSettings


@pytest.mark.parametrize("name", ["auto.offset.reset", "enable.auto.commit", "group.id"])
def test_what_the_contract_rests_on_cannot_be_set_for_the_source(name: str) -> None:
    """The sentence says why."""
    with pytest.raises(UsageError, match=name):
        SourceSettings("b:1", {name: "x"})


@pytest.mark.parametrize("name", ["acks", "enable.idempotence", "message.timeout.ms"])
def test_what_the_contract_rests_on_cannot_be_set_for_the_sink(name: str) -> None:
    """The sentence says why."""
    with pytest.raises(UsageError, match=name):
        SinkSettings("b:1", {name: "x"})


def test_the_library_does_not_choose_positions() -> None:
    """No reset policy, no commits of its own; the end of a partition is told."""
    config = SourceSettings("b:1").consumer_config("g")
    assert config["auto.offset.reset"] == "error"
    assert config["enable.auto.commit"] is False
    assert config["partition.assignment.strategy"] == "cooperative-sticky"
    assert config["fetch.queue.backoff.ms"] == 5


def test_the_users_settings_win() -> None:
    """Also where they are for both sides."""
    config = SourceSettings("b:1", {"session.timeout.ms": "6000", "security.protocol": "ssl"}).consumer_config("g")
    assert (config["session.timeout.ms"], config["security.protocol"]) == ("6000", "ssl")
    assert SinkSettings("b:1", {"linger.ms": "7"}).producer_config()["linger.ms"] == "7"


FOR_ONE: dict[str, str] = {
    "auto.commit.interval.ms": "700",
    "batch.num.messages": "70",
    "batch.size": "70000",
    "check.crcs": "true",
    "compression.level": "2",
    "compression.type": "lz4",
    "coordinator.query.interval.ms": "700",
    "fetch.error.backoff.ms": "70",
    "fetch.max.bytes": "7000000",
    "fetch.min.bytes": "7",
    "fetch.queue.backoff.ms": "70",
    "fetch.wait.max.ms": "70",
    "group.instance.id": "seven",
    "heartbeat.interval.ms": "700",
    "isolation.level": "read_uncommitted",
    "linger.ms": "7",
    "max.partition.fetch.bytes": "700000",
    "max.poll.interval.ms": "70000",
    "partition.assignment.strategy": "range",
    "partitioner": "consistent",
    "queue.buffering.max.kbytes": "70000",
    "queue.buffering.max.messages": "7000",
    "queued.max.messages.kbytes": "70000",
    "queued.min.messages": "7000",
    "retries": "7",
    "session.timeout.ms": "7000",
    "sticky.partitioning.linger.ms": "7",
}
"""What only one of the two clients knows, with a value that is not its default."""


def test_what_one_client_alone_knows_is_not_told_to_the_other(caplog: pytest.LogCaptureFixture) -> None:
    """The library would warn of each, in every run."""
    logger = logging.getLogger("library")
    consumer = Consumer(SourceSettings("127.0.0.1:1", FOR_ONE).consumer_config("g"), logger=logger)
    producer = Producer(SinkSettings("127.0.0.1:1", FOR_ONE).producer_config(), logger=logger)
    consumer.poll(0.1)
    producer.poll(0.1)
    consumer.close()
    assert "CONFWARN" not in caplog.text
    careless = Producer({"bootstrap.servers": "127.0.0.1:1", "fetch.wait.max.ms": 70}, logger=logger)
    careless.poll(0.1)
    assert "CONFWARN" in caplog.text


def test_received_bytes_are_counted_only_for_who_asks_the_library_for_statistics() -> None:
    """By the library's own setting; the producer is not troubled with it."""
    asked = {"statistics.interval.ms": "200"}
    assert not SourceSettings("b:1").counts_received
    assert not SourceSettings("b:1", {"statistics.interval.ms": "0"}).counts_received
    assert SourceSettings("b:1", asked).counts_received
    assert SourceSettings("b:1", asked).consumer_config("g")["statistics.interval.ms"] == "200"
    assert "statistics.interval.ms" not in SinkSettings("b:1", asked).producer_config()


@pytest.mark.parametrize("bytes_max", [1024, 1024 * 1024, 64 * 1024 * 1024, 4 * 1024**3])
def test_fetches_and_queue_follow_from_the_bound(bytes_max: int) -> None:
    """Together they are a small part of it, unless it is smaller than the library can go."""
    config = SourceSettings("b:1", bytes_max=bytes_max).consumer_config("g")
    fetch, queued = config["fetch.max.bytes"], config["queued.max.messages.kbytes"] * 1024
    assert config["message.max.bytes"] <= fetch
    assert config["max.partition.fetch.bytes"] <= fetch
    assert fetch + queued <= max(bytes_max // 8, 64 * 1024)


def test_batches_follow_from_the_bound() -> None:
    """What is under way beyond the gate is a small part of it."""
    assert SourceSettings("b:1").batch_records_max == 1000
    assert SourceSettings("b:1", records_max=500).batch_records_max == 10
    assert SourceSettings("b:1", records_max=1).batch_records_max == 1


@pytest.mark.parametrize(
    ("extra", "incremental"),
    [
        ({}, True),
        ({"partition.assignment.strategy": "range,roundrobin"}, False),
        ({"group.protocol": "consumer"}, True),
    ],
)
def test_how_partitions_are_given_follows_from_the_group(extra: dict[str, str], incremental: bool) -> None:
    """Piece by piece, or all at once where the user asks for an eager assignor."""
    assert SourceSettings("b:1", extra).incremental is incremental


def test_the_new_group_protocol_gets_no_setting_that_it_refuses() -> None:
    """Session and assignor are the broker's then (KIP-848)."""
    config = SourceSettings("b:1", {"group.protocol": "consumer"}).consumer_config("g")
    assert not {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"} & config.keys()


@pytest.mark.parametrize("more", [{"grace_s": 290.0}, {"extra": {"max.poll.interval.ms": "15000"}}])
def test_a_grace_that_could_cost_the_membership_is_refused(more: dict[str, Any]) -> None:
    """Grace, commit and heartbeat must fit between two polls."""
    with pytest.raises(UsageError, match=r"max\.poll\.interval\.ms"):
        SourceSettings("b:1", **more)
