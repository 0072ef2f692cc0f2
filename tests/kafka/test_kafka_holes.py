"""Fault 1 on Apache Kafka: markers, aborted records, compaction and retention make holes; holes are normal (C10)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from contract_world import Given, eventually

from anabranch.core.history import Sent

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World

pytestmark = pytest.mark.promise("C10")

KEYS = 5


class Transactions:
    """A transactional producer that tells the history what it committed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 0
        self._producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": f"of-{world.topic}"})
        self._producer.init_transactions(30)

    def commit(self, count: int, partition: int = 0) -> None:
        """Write records and commit them: they exist, and a marker after them."""
        sent = self._write(count, partition)
        self._producer.commit_transaction(30)
        self._world.record_sent(sent)

    def abort(self, count: int, partition: int = 0) -> None:
        """Write records and abort them: their offsets and their marker's are holes."""
        self._write(count, partition)
        self._producer.abort_transaction(30)

    def begin(self, count: int, partition: int = 0) -> list[Sent]:
        """Write records and leave the transaction open."""
        return self._write(count, partition)

    def end(self) -> None:
        """Commit the open transaction."""
        self._producer.commit_transaction(30)

    def _write(self, count: int, partition: int) -> list[Sent]:
        sent: list[Sent] = []

        def delivered(error: object, message: object) -> None:
            assert error is None, error
            place = (message.partition(), message.offset(), message.key())  # type: ignore[attr-defined]
            sent.append(Sent(self._world.topic, *place))

        self._producer.begin_transaction()
        for _ in range(count):
            self._number += 1
            key = b"key-%d" % (self._number % KEYS)
            self._producer.produce(self._world.topic, json.dumps({}).encode(), key, partition, delivered)
        self._producer.flush(30)
        assert len(sent) == count
        return sent


def test_markers_and_aborted_records_are_holes(engine_runner: Runner, world: World) -> None:
    """Nothing aborted is handled, nothing stalls at a marker, and the end that is committed is the log's own, past the
    last marker and an aborted tail.
    """
    world.create(partitions=2)
    transactions = Transactions(world)
    for partition in (0, 1):
        transactions.abort(7, partition)
        transactions.commit(20, partition)
        transactions.abort(30, partition)
        transactions.commit(3, partition)
    transactions.abort(12, 1)
    engine_runner.run()
    assert len(world.settled()) == 46
    assert world.positions() == world.ends()
    world.accepts(records=46, duplicates_max=0)


def test_a_topic_of_nothing_but_aborted_records_is_done(engine_runner: Runner, world: World) -> None:
    """There is no record at all, and the end is not 0: no stall."""
    world.create()
    transactions = Transactions(world)
    transactions.abort(10)
    transactions.abort(5)
    engine_runner.run()
    assert world.settled() == {}
    assert world.positions() == world.ends()


def test_an_open_transaction_is_waited_for(engine_runner: Runner, world: World) -> None:
    """Records of an open transaction are not seen, nor passed: they are handled when it is committed."""
    world.create()
    transactions = Transactions(world)
    transactions.commit(5)
    open_one = transactions.begin(5)
    member = engine_runner.start()
    eventually(lambda: world.positions() == {0: 6}, "the committed ones are done, and their marker passed")
    world.record_sent(open_one)
    transactions.end()
    eventually(lambda: world.positions() == {0: 12}, "the others are handled when they are committed")
    member.stop()
    assert member.wait() == 0, member.said()
    world.accepts(records=10, duplicates_max=0)


def test_a_stuck_record_among_aborted_ones_holds_the_commit_and_only_it(engine_runner: Runner, world: World) -> None:
    """The lowest unsettled record is below aborted ones: the commit stays at it, with a carryover that fits, and the
    next owner repeats nothing.
    """
    world.create()
    release = world.flag("release")
    world.send([Given(b"stuck", {"fail_until": str(release)})])
    transactions = Transactions(world)
    for _ in range(5):
        transactions.commit(10)
        transactions.abort(10)
    member = engine_runner.start(member="before", drain_s=0.5)
    eventually(lambda: len(world.settled()) == 50, "all but the stuck record are settled")
    eventually(lambda: world.positions() == {0: 0}, "only the stuck record is waited for")
    member.stop()
    assert member.wait() in {0, 5}, member.said()
    assert world.positions() == {0: 0}
    release.touch()
    engine_runner.run(member="after")
    assert world.positions() == world.ends()
    world.accepts(records=51, duplicates_max=0)


def test_compaction_leaves_holes(engine_runner: Runner, world: World) -> None:
    """Old values of each key are compacted away, before the first record that is left and between the others."""
    settings = {
        "cleanup_policy": "compact",
        "segment_bytes": "20000",
        "min_cleanable_dirty_ratio": "0.01",
        "max_compaction_lag_ms": "500",
        "min_compaction_lag_ms": "0",
        "delete_retention_ms": "100",
    }
    world.create(**settings)
    padding = "x" * 500
    for _ in range(20):
        world.send([Given(b"key-%d" % key, {"padding": padding}) for key in range(20)], topic=world.topic)
    world.send([Given(b"last")], topic=world.topic)
    left = eventually(lambda: compacted(world), "the cleaner has worked", 60)
    engine_runner.run()
    handled = {offset for _, offset in world.settled()}
    assert left >= handled >= {found.offset for found in world.read(world.topic)}
    assert world.positions() == {0: 401}


def compacted(world: World) -> set[int]:
    """Answer the offsets that are left, once there are far fewer than were written."""
    left = {found.offset for found in world.read(world.topic)}
    return left if len(left) < 300 else set()


def test_retention_that_passes_the_committed_position_is_counted(engine_runner: Runner, world: World) -> None:
    """Kafka's own retention deletes segments above the group's position while nobody reads: what is left is handled,
    what is gone is counted.
    """
    world.create(segment_bytes="10000", retention_bytes="30000", file_delete_delay_ms="0")
    world.send([Given(b"key-%d" % (number % KEYS)) for number in range(5)])
    engine_runner.run(member="before")
    assert world.positions() == {0: 5}
    for _ in range(20):
        world.send([Given(b"key-%d" % number, {"padding": "x" * 900}) for number in range(KEYS)])
    start = eventually(lambda: log_start(world) > 50 and log_start(world), "retention has passed the position", 60)
    member = engine_runner.run(member="after")
    assert member.statistics()["lost_to_retention"] == start - 5
    assert {offset for _, offset in world.settled()} == {*range(5), *range(start, 105)}
    assert world.positions() == {0: 105}


def log_start(world: World) -> int:
    """Answer where the log begins."""
    place = TopicPartition(world.topic, 0)
    return int(world.admin.list_offsets({place: OffsetSpec.earliest()})[place].result(10).offset)
