"""The configs of a topic: what is taken, what is refused and how it is said, what a log makes of them."""

from __future__ import annotations

import pytest

from anabranch.broker.topic_config import TOPIC_CONFIGS, check_configs, log_config
from anabranch.core.errors import UsageError
from anabranch.core.options import BrokerOptions


def test_every_default_is_a_value_that_may_be_given() -> None:
    """What DescribeConfigs shows as the default, CreateTopics takes."""
    options = BrokerOptions()
    defaults = {name: row.default(options) for name, row in TOPIC_CONFIGS.items()}
    assert check_configs(defaults) == defaults


def test_every_config_says_what_it_does() -> None:
    """Each row has a sentence, which DescribeConfigs gives as documentation."""
    for name, row in TOPIC_CONFIGS.items():
        assert row.name == name
        assert row.sentence.endswith("."), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", "0"),
        ("retention.bytes", str(2**63 - 1)),
        ("segment.bytes", "1024"),
        ("max.message.bytes", "1"),
        ("message.timestamp.type", "LogAppendTime"),
        ("cleanup.policy", "delete"),
        ("compression.type", "producer"),
        ("min.insync.replicas", "1"),
    ],
)
def test_what_is_served_is_taken(name: str, value: str) -> None:
    """The value is kept as it was given."""
    assert check_configs({name: value}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("retention.mss", "1", "unknown topic config retention.mss"),
        ("retention.ms", "-2", "out of bounds"),
        ("retention.ms", str(2**63), "out of bounds"),
        ("retention.ms", "soon", "not a whole number"),
        ("retention.ms", "1.5", "not a whole number"),
        ("retention.ms", "", "not a whole number"),
        ("retention.ms", None, "needs a value"),
        ("segment.bytes", "1023", "out of bounds"),
        ("segment.bytes", str(2**31), "out of bounds"),
        ("max.message.bytes", "0", "out of bounds"),
        ("cleanup.policy", "compact", "not served"),
        ("cleanup.policy", "compact,delete", "not served"),
        ("compression.type", "zstd", "not served"),
        ("min.insync.replicas", "2", "out of bounds"),
        ("message.timestamp.type", "logappendtime", "not served"),
    ],
)
def test_what_is_not_served_is_refused_with_what_would_be_right(name: str, value: str | None, sentence: str) -> None:
    """A config that is taken and has no effect would be a lie, so it is refused, and the message names the config."""
    with pytest.raises(UsageError, match=sentence) as raised:
        check_configs({name: value})
    assert name in str(raised.value)


def test_an_unknown_config_is_answered_with_the_known_ones() -> None:
    """The sentence lists what there is."""
    with pytest.raises(UsageError) as raised:
        check_configs({"delete.retention.ms": "1"})
    assert all(name in str(raised.value) for name in TOPIC_CONFIGS)


def test_one_bad_config_refuses_them_all() -> None:
    """A topic is created with all its configs or not at all."""
    with pytest.raises(UsageError):
        check_configs({"retention.ms": "1", "nonsense": "1"})


def test_a_log_takes_the_topics_configs_before_the_brokers() -> None:
    """What the topic says wins, what it does not say comes from the broker's options, in the log's units."""
    options = BrokerOptions(retention_s=60, segment_s=5, segment_bytes=4096, message_bytes_max=2000, flush="always")
    of_broker = log_config({}, options)
    assert (of_broker.retention_ms, of_broker.segment_ms) == (60_000, 5_000)
    assert (of_broker.segment_bytes, of_broker.message_bytes_max) == (4096, 2000)
    assert of_broker.wait_for_sync
    of_topic = log_config(
        {"retention.ms": "7", "segment.bytes": "2048", "message.timestamp.type": "LogAppendTime"}, options
    )
    assert (of_topic.retention_ms, of_topic.segment_bytes, of_topic.timestamp_type) == (7, 2048, "LogAppendTime")
    assert of_topic.segment_ms == 5_000


@pytest.mark.parametrize("flush", ["interval", "os"])
def test_a_log_waits_for_the_disk_only_under_flush_always(flush: str) -> None:
    """The high watermark follows the sync only there."""
    assert not log_config({}, BrokerOptions(flush=flush)).wait_for_sync


def test_keeping_for_ever_is_minus_one_in_both_languages() -> None:
    """retention_s=-1 of the broker is retention.ms=-1 of a topic, not -1000."""
    assert TOPIC_CONFIGS["retention.ms"].default(BrokerOptions(retention_s=-1)) == "-1"
