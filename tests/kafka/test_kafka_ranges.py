"""Fault 1 under the Spark source, on Apache Kafka: ranges over markers, aborted, open and compacted offsets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from contract_world import Given, eventually
from test_kafka_holes import Transactions, compacted

from anabranch.kafka.client import Connection
from anabranch.kafka.extents import Range, Topics, TopicSeen
from anabranch.kafka.lookout import Lookout
from anabranch.kafka.ranges import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract_world import World


@pytest.fixture
def reader(world: World) -> Iterator[RangeReader]:
    made = RangeReader(Connection(world.bootstrap), patience_s=30)
    yield made
    made.close()


def seen_of(world: World, **settings: str) -> TopicSeen:
    return Lookout(Connection(world.bootstrap, settings), Topics((world.topic,))).look()[world.topic]


def read(reader: RangeReader, world: World, topic_id: str, start: int, end: int) -> list[int]:
    return [offset for rows in reader.read(Range(world.topic, topic_id, 0, start, end)) for offset in rows.offsets]


def test_every_range_of_a_log_with_transactions_has_its_committed_records(world: World, reader: RangeReader) -> None:
    """Ranges that begin or end at a marker, within aborted records, or consist of nothing else: none waits."""
    world.create()
    transactions = Transactions(world)
    transactions.commit(3)  # 0-2, marker 3
    transactions.abort(4)  # 4-7, marker 8
    transactions.commit(2)  # 9-10, marker 11
    transactions.abort(3)  # 12-14, marker 15
    seen = seen_of(world)
    assert seen.ends == {0: 16}
    records = [0, 1, 2, 9, 10]
    for start in range(16):
        for end in range(start + 1, 17):
            assert read(reader, world, seen.id, start, end) == [at for at in records if start <= at < end]


def test_an_open_transaction_ends_what_may_be_read(world: World, reader: RangeReader) -> None:
    """A range that reached into it would wait for its end; with read_uncommitted it may."""
    world.create()
    transactions = Transactions(world)
    transactions.commit(5)
    transactions.begin(5)
    assert seen_of(world).ends == {0: 6}
    assert seen_of(world, **{"isolation.level": "read_uncommitted"}).ends == {0: 11}
    transactions.end()
    seen = eventually(lambda: (found := seen_of(world)).ends == {0: 12} and found, "the end of the transaction")
    assert read(reader, world, seen.id, 0, 12) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_ranges_of_a_compacted_log_have_what_is_left(world: World, reader: RangeReader) -> None:
    """Most offsets are gone: fewer records than offsets is no reason to wait for more."""
    settings = {
        "cleanup_policy": "compact",
        "segment_bytes": "20000",
        "min_cleanable_dirty_ratio": "0.01",
        "max_compaction_lag_ms": "500",
        "min_compaction_lag_ms": "0",
        "delete_retention_ms": "100",
    }
    world.create(**settings)
    for _ in range(20):
        world.send([Given(b"key-%d" % key, {"padding": "x" * 500}) for key in range(20)], topic=world.topic)
    world.send([Given(b"last")], topic=world.topic)
    before = eventually(lambda: compacted(world), "the cleaner has worked", 60)
    seen = seen_of(world)
    chance = random.Random(3)
    for _ in range(40):
        start = chance.randrange(400)
        end = chance.randrange(start + 1, 402)
        found = read(reader, world, seen.id, start, end)
        assert found == sorted(set(found))
        after = {each.offset for each in world.read(world.topic)}
        assert {at for at in after if start <= at < end} <= set(found) <= {at for at in before if start <= at < end}
