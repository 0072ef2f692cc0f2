"""Dead letters through a sink, on a real broker: fault 17."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from restartable_broker import RestartableBroker
from sink_account import Account
from topic_contents import contents, create

from anabranch.core.errors import PeerError, UsageError
from anabranch.core.records import Record
from anabranch.kafka.client import LIBRARY_LOGGER
from anabranch.kafka.letters import HEADERS_BYTES_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch import Broker


@pytest.fixture
def source(anabranch_broker: Broker) -> str:
    """Make a topic that letters come from."""
    return create(anabranch_broker.bootstrap, f"source-{time.monotonic_ns()}", 3)


def test_a_letter_is_the_record_byte_for_byte_and_its_cause(anabranch_broker: Broker, source: str) -> None:
    """Key, value, headers (also doubled and null ones) and timestamp are the record's; ours stand behind them."""
    headers = (("trace", b"\x00\xff"), ("trace", None), ("empty", b""), ("anabranch.topic", b"an older death"))
    record = Record(source, 2, 41, b"\x00key", b"value\xff", headers, 1_700_000_000_123, 5)
    letters = f"{source}.dead"
    with Account(anabranch_broker.bootstrap, dead_letter_topic=letters) as account:
        buried = account.bury(record, ValueError("not a number: ü"), "charge", attempt=4)
        delivery = account.wait(1)[0]
        assert (delivery.task, delivery.error) == (buried, None)
    found = contents(anabranch_broker.bootstrap, letters, 1)[0]
    assert (found.key(), found.value(), found.timestamp()[1]) == (record.key, record.value, record.timestamp_ms)
    written = found.headers()
    assert written is not None
    assert tuple(written[:4]) == headers
    assert written[4:] == [
        ("anabranch.topic", source.encode()),
        ("anabranch.partition", b"2"),
        ("anabranch.offset", b"41"),
        ("anabranch.timestamp", b"1700000000123"),
        ("anabranch.group", b"the group"),
        ("anabranch.step", b"charge"),
        ("anabranch.attempts", b"4"),
        ("anabranch.error", b"ValueError"),
        ("anabranch.message", "not a number: ü".encode()),
    ]


@pytest.mark.parametrize(("key", "value"), [(None, None), (b"", b""), (None, b"v"), (b"k", None)])
def test_null_and_empty_stay_what_they_are(
    anabranch_broker: Broker, source: str, key: bytes | None, value: bytes | None
) -> None:
    """A tombstone that died is a tombstone in the letters."""
    letters = f"{source}.dead"
    with Account(anabranch_broker.bootstrap, dead_letter_topic=letters) as account:
        account.bury(Record(source, 0, 1, key, value, (), 1000), ValueError("no"))
        account.wait(1)
    found = contents(anabranch_broker.bootstrap, letters, 1)[0]
    assert (found.key(), found.value()) == (key, value)


def test_all_letters_of_a_partition_are_in_one_partition(anabranch_broker: Broker, source: str) -> None:
    """So are all letters of a key, whatever the ordering key is."""
    letters = f"{source}.dead"
    with Account(anabranch_broker.bootstrap, dead_letter_topic=letters) as account:
        for number in range(30):
            account.bury(Record(source, number % 3, number, b"%d" % number, b"v"), ValueError("no"))
        account.wait(30)
    for found in contents(anabranch_broker.bootstrap, letters, 30):
        origin = dict(found.headers() or ())["anabranch.partition"]
        assert found.partition() == int(origin or b"")


def test_a_letter_at_the_limit_of_its_source_fits(anabranch_broker: Broker) -> None:
    """The letters' topic has room for the source's largest record and our headers, however long the cause is."""
    bootstrap = anabranch_broker.bootstrap
    source = create(bootstrap, f"large-{time.monotonic_ns()}", 1, max_message_bytes="2000000")
    letters = f"{source}.dead"
    with Account(bootstrap, dead_letter_topic=letters) as account:
        account.bury(Record(source, 0, 0, b"k", b"x" * 1_999_900), RuntimeError("ü" * 100_000), "step" * 1000)
        assert account.wait(1)[0].error is None
    found = contents(bootstrap, letters, 1)[0]
    assert found.value() == b"x" * 1_999_900
    assert sum(len(name) + len(value or b"") for name, value in found.headers() or ()) < HEADERS_BYTES_MAX
    assert _setting(bootstrap, letters, "max.message.bytes") == "2065536"


def test_a_letter_that_does_not_fit_halts_with_the_fix(anabranch_broker: Broker, source: str) -> None:
    """A letters' topic that someone made too small: the refusal is reported, nothing is dropped in silence."""
    letters = create(anabranch_broker.bootstrap, f"{source}.dead", 1, max_message_bytes="1000")
    with Account(anabranch_broker.bootstrap, dead_letter_topic=letters) as account:
        account.bury(Record(source, 0, 7, b"k", b"x" * 5000), ValueError("no"))
        error = account.wait(1)[0].error
        assert isinstance(error, PeerError)
        assert f"a dead letter of {source}/0 at 7 was refused" in str(error)
        assert f"raise max.message.bytes of topic {letters}" in str(error)


def test_a_letter_waits_for_a_broker_that_is_down(tmp_path: Path) -> None:
    """Nothing is reported before the letter is there; the topic is made when the broker is back."""
    with RestartableBroker(tmp_path) as broker:
        create(broker.bootstrap, "source", 2)
        with Account(broker.bootstrap, dead_letter_topic="dead") as account:
            broker.end("clean")
            account.bury(Record("source", 1, 0, b"k", b"v"), ValueError("no"))
            assert not account.deliveries
            broker.start()
            assert account.wait(1)[0].error is None
        assert len(contents(broker.bootstrap, "dead", 1)) == 1


def test_a_letter_without_a_topic_is_refused_with_the_fix(anabranch_broker: Broker) -> None:
    """The sentence names what to write into the pipeline."""
    with Account(anabranch_broker.bootstrap) as account, pytest.raises(UsageError, match="dead_letters"):
        account.bury(Record("t", 0, 0, None, None), ValueError("no"))


def _setting(bootstrap: str, topic: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LIBRARY_LOGGER)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return str(admin.describe_configs([resource])[resource].result()[name].value)
