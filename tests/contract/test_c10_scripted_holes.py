"""C10 for the holes that our broker does not have yet, on a scripted log: markers, aborted records, compaction.

`tests/kafka/test_kafka_holes.py` shows the same on Apache Kafka.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from contract_scripted import play, record_sent

from anabranch.core.work import TopicPartition
from anabranch.testing.scripted_source import (
    Aborted,
    Await,
    Compacted,
    Crash,
    Give,
    Marker,
    Revoke,
    ScriptedLog,
    Trim,
    record,
)

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World

    from anabranch.testing.script import Step

pytestmark = [
    pytest.mark.promise("C10"),
    pytest.mark.skipif("ANABRANCH_TEST_BOOTSTRAP" in os.environ, reason="no Kafka is used here: see tests/kafka"),
]


def records(partition: TopicPartition, count: int) -> list[Step]:
    """Write records of a few keys."""
    return [record(partition, b"key-%d" % (number % 3), b"{}") for number in range(count)]


def test_c10_markers_and_aborted_records_are_passed(engine_runner: Runner, world: World) -> None:
    """Fault 1. Transactions of one and of many records, aborted ones in front, between and behind: the position that is
    committed is behind the last marker, though no record stands there.
    """
    one, log = TopicPartition(world.topic, 0), ScriptedLog()
    script = [Give(one), Aborted(one, 5), *records(one, 4), Marker(one), *records(one, 1), Marker(one)]
    script += [Aborted(one, 30), *records(one, 7), Marker(one), Aborted(one, 3)]
    play(world, engine_runner.engine, [*script, Await(one, 56)], log)
    assert log.committed(one) == log.partition(one).end == 56
    world.accepts(records=record_sent(world, log, one), duplicates_max=0)


def test_c10_compaction_leaves_holes_of_any_size(engine_runner: Runner, world: World) -> None:
    """Fault 1. Most of the log was compacted away, its beginning and its end too."""
    one, log = TopicPartition(world.topic, 0), ScriptedLog()
    script = [Give(one), Compacted(one, 1000), *records(one, 3), Compacted(one, 1_000_000), *records(one, 3)]
    play(world, engine_runner.engine, [*script, Compacted(one, 2_000_000), Await(one, 2_000_000)], log)
    world.accepts(records=record_sent(world, log, one), duplicates_max=0)


def test_c10_holes_survive_a_revoke_and_a_crash(engine_runner: Runner, world: World) -> None:
    """The partition moves away and back, then its owner dies in the middle of holes: the next one reads on, and nothing
    is skipped that exists, nor waited for that does not.
    """
    one, log = TopicPartition(world.topic, 0), ScriptedLog()
    begin = [Give(one), *records(one, 6), Aborted(one, 9), Revoke(one), Give(one), *records(one, 6), Marker(one)]
    play(world, engine_runner.engine, [*begin, Aborted(one, 4), *records(one, 2), Crash()], log)
    end = log.partition(one).end
    play(world, engine_runner.engine, [Give(one), Marker(one), Await(one, end + 1)], log, member="b")
    world.accepts(records=record_sent(world, log, one))


def test_c10_retention_that_moves_the_start_while_nobody_reads(engine_runner: Runner, world: World) -> None:
    """The log's start passes the committed position between two owners: what is left is handled."""
    one, log = TopicPartition(world.topic, 0), ScriptedLog()
    play(world, engine_runner.engine, [Give(one), *records(one, 5), Await(one, 5), Revoke(one)], log)
    left = [*records(one, 10), Trim(one, 12), Give(one), *records(one, 2), Marker(one), Await(one, 18)]
    play(world, engine_runner.engine, left, log, member="b")
    settled = {offset for _, offset in world.settled()}
    assert settled == {0, 1, 2, 3, 4, 12, 13, 14, 15, 16}
