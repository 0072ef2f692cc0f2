"""Outputs through a sink, on a real broker."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.cimpl import murmur2
from restartable_broker import RestartableBroker
from sink_account import Account
from topic_contents import contents, create
from waiting import eventually

from anabranch.core.errors import PeerError
from anabranch.core.work import Output
from anabranch.kafka.admin import Admin
from anabranch.kafka.client import Connection

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from anabranch import Broker


@pytest.fixture
def topic(anabranch_broker: Broker) -> str:
    """Make a topic with three partitions."""
    return create(anabranch_broker.bootstrap, f"sink-{time.monotonic_ns()}", 3)


def test_an_output_is_written_as_it_is_and_reported_when_it_is_there(anabranch_broker: Broker, topic: str) -> None:
    """Key, value, headers and timestamp arrive; null and empty are not the same; the partition is Java's."""
    outputs = [
        Output(topic, b"key", b"value", [("a", b"1"), ("a", None), ("b", b"")], 1234),
        Output(topic, None, None, []),
        Output(topic, b"", b"", ()),
    ]
    with Account(anabranch_broker.bootstrap) as account:
        tasks = account.write(*([each] for each in outputs))
        assert {id(each.task) for each in account.wait(3)} == {id(each) for each in tasks}
        assert [each.error for each in account.deliveries] == [None] * 3
    found = contents(anabranch_broker.bootstrap, topic, 3)
    assert {(each.key(), each.value()) for each in found} == {(b"key", b"value"), (None, None), (b"", b"")}
    keyed = next(each for each in found if each.key() == b"key")
    assert keyed.headers() == [("a", b"1"), ("a", None), ("b", b"")]
    assert keyed.timestamp()[1] == 1234
    assert keyed.partition() == murmur2(b"key", 3)


def test_a_task_with_several_outputs_is_reported_once(anabranch_broker: Broker, topic: str) -> None:
    """Delivered means that all of its outputs are acknowledged, in their order, also to different topics."""
    other = f"{topic}-other"
    with Account(anabranch_broker.bootstrap, partitions=1) as account:
        account.write(
            [Output(topic, b"k", b"1", ()), Output(other, b"k", b"2", ()), Output(topic, b"k", b"3", ())], [], []
        )
        account.wait(3)
        assert account.sink.statistics()["topics_created"] == [other]
    assert [each.value() for each in contents(anabranch_broker.bootstrap, topic, 2)] == [b"1", b"3"]
    assert [each.value() for each in contents(anabranch_broker.bootstrap, other, 1)] == [b"2"]


def test_a_topic_is_made_on_demand_like_the_source(anabranch_broker: Broker, topic: str) -> None:
    """It has as many partitions as the topic that is read."""
    made = f"{topic}-made"
    with Account(anabranch_broker.bootstrap, source_topics=(topic,), topic=made) as account:
        account.write([Output(made, b"k", b"v", ())])
        account.wait(1)
    partitions = {each.name: each.partitions for each in Admin(Connection(anabranch_broker.bootstrap)).topics()}
    assert partitions[made] == 3


def test_more_than_the_library_takes_waits_in_order(anabranch_broker: Broker, topic: str) -> None:
    """A full queue of the library is an answer: what does not fit waits, and keeps its order per key."""
    with Account(anabranch_broker.bootstrap, backlog_outputs_max=10) as account:
        account.write(*([Output(topic, b"%d" % (each % 7), b"%d" % each, ())] for each in range(2000)))
        assert account.sink.statistics()["backlog"] > 0
        account.wait(2000)
    _check_order(contents(anabranch_broker.bootstrap, topic, 2000), 7, 2000)


def test_small_records_pass_a_topic_with_a_small_limit(anabranch_broker: Broker, topic: str) -> None:
    """A batch is refused for its size though each of its records would fit: they are sent alone, none is refused."""
    tight = create(anabranch_broker.bootstrap, f"{topic}-tight", 1, max_message_bytes="600")
    with Account(anabranch_broker.bootstrap, extra={"linger.ms": "50"}) as account:
        account.write(*([Output(tight, b"k%d" % each, b"x" * 100, ())] for each in range(50)))
        assert [each.error for each in account.wait(50)] == [None] * 50
        assert account.sink.statistics()["resent"] > 0
    assert len(contents(anabranch_broker.bootstrap, tight, 50)) == 50


def test_an_output_that_is_too_large_is_refused_with_the_fix(anabranch_broker: Broker, topic: str) -> None:
    """A permanent refusal ends the waiting for that task, and only for that one."""
    tight = create(anabranch_broker.bootstrap, f"{topic}-tight", 1, max_message_bytes="2000")
    with Account(anabranch_broker.bootstrap) as account:
        large, small = account.write([Output(tight, b"k", b"x" * 5000, ())], [Output(tight, b"k", b"x", ())])
        reported = {id(each.task): each.error for each in account.wait(2)}
        error = reported[id(large)]
        assert isinstance(error, PeerError)
        assert f"raise max.message.bytes of topic {tight}" in str(error)
        assert reported[id(small)] is None


def test_a_missing_topic_is_refused_when_none_may_be_made(anabranch_broker: Broker) -> None:
    """After a while, and with the command that makes it."""
    with Account(anabranch_broker.bootstrap, create_topics=False, refusal_s=0.3) as account:
        account.write([Output("nowhere-to-be-found", None, b"v", ())])
        error = account.wait(1)[0].error
        assert "anabranch topics create nowhere-to-be-found" in str(error)


@pytest.mark.parametrize("how", ["clean", "kill -9"])
def test_outputs_survive_a_restart_of_the_broker_in_order(tmp_path: Path, how: str) -> None:
    """Everything is acknowledged in the end; each output is there once, in order per key; no handler was asked."""
    with RestartableBroker(tmp_path, flush="always") as broker, Account(broker.bootstrap) as account:
        create(broker.bootstrap, "out", 3)
        account.write(*([Output("out", b"%d" % (each % 5), b"%d" % each, ())] for each in range(500)))
        account.wait(500)
        broker.end(how)
        account.write(*([Output("out", b"%d" % (each % 5), b"%d" % each, ())] for each in range(500, 1000)))
        eventually(lambda: account.sink.statistics()["unreachable"], "the outage to be noticed")
        assert len(account.deliveries) == 500
        broker.start()
        assert not [each.error for each in account.wait(1000) if each.error is not None]
        _check_order(contents(broker.bootstrap, "out", 1000), 5, 1000)


def test_a_broken_producer_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    """What was not acknowledged goes out again through another producer, in order."""
    with RestartableBroker(tmp_path) as broker, Account(broker.bootstrap) as account:
        create(broker.bootstrap, "out", 1)
        account.write([Output("out", b"0", b"0", ())])
        account.wait(1)
        broker.end("clean")
        account.write(*([Output("out", b"0", b"%d" % each, ())] for each in range(1, 300)))
        account.sink.break_producer()
        eventually(lambda: account.sink.statistics()["replaced"] == 1, "another producer")
        account.write(*([Output("out", b"0", b"%d" % each, ())] for each in range(300, 400)))
        broker.start()
        account.wait(400)
        _check_order(contents(broker.bootstrap, "out", 400), 1, 400)


def test_a_sink_that_is_closed_ends_when_all_is_acknowledged(tmp_path: Path) -> None:
    """`join` says whether everything is there; `terminate` ends it if that cannot be."""
    with RestartableBroker(tmp_path) as broker:
        create(broker.bootstrap, "out", 1)
        with Account(broker.bootstrap) as account:
            account.write([Output("out", b"k", b"v", ())])
            account.sink.close()
            assert account.sink.join(10)
            assert len(account.deliveries) == 1
        with Account(broker.bootstrap, topic="out") as account:
            broker.end("clean")
            account.write([Output("out", b"k", b"v", ())])
            account.sink.close()
            assert not account.sink.join(0.2)
            account.sink.terminate()
            assert not account.sink.join(10)
            assert not account.deliveries


def _check_order(found: list[Message], keys: int, count: int) -> None:
    """See that every number is there once and that those of a key rise."""
    per_key: dict[bytes | None, list[int]] = defaultdict(list)
    for message in found:
        per_key[message.key()].append(int(message.value() or b""))
    assert dict(per_key) == {b"%d" % key: list(range(key, count, keys)) for key in range(keys)}
