"""Queries in awkward places and times: folders with odd names, batches that take long, retention that is faster."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from query_world import QueryWorld, eventually
from source_topics import delete_records

from anabranch.spark import queries as queries_module
from anabranch.spark import query as query_module
from anabranch.spark.checkpoint import newest_commit, planned, query_id
from anabranch.spark.hadoop_folder import literal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from anabranch import Broker

pytestmark = pytest.mark.xdist_group("spark")

RECEIPTS = [{"order": n, "cents": 10 * n} for n in range(20)]
ORDERS = sorted(((n,) for n in range(20)), key=str)


@pytest.fixture
def world(spark: SparkSession, anabranch_broker: Broker, tmp_path: Path) -> Iterator[QueryWorld]:
    folder = tmp_path / "a b é [1]"
    folder.mkdir()
    made = QueryWorld(spark, anabranch_broker.bootstrap, folder)
    yield made
    made.close()


def test_folders_may_have_any_name(world: QueryWorld) -> None:
    """Checkpoint, table and database lie where they were said to, and a batch that comes again is still known."""
    database = f"d_{world.group.replace('-', '_')}"
    world.spark.sql(f"CREATE DATABASE {database} LOCATION '{world.folder}/base'")
    pipeline = world.pipeline().write_table(world.table, name="table").write_table(f"{database}.t", name="named")
    try:
        world.put(RECEIPTS)
        assert world.queries(pipeline).run_to_end()
        for query in ("table", "named"):
            folder = world.checkpoint(query)
            assert query_id(folder)
            for name in (f"{newest_commit(folder)}", f".{newest_commit(folder)}.crc"):
                (folder / "commits" / name).unlink()
        assert world.queries(pipeline).run_to_end()
        assert world.rows("order", table=literal(world.table)) == ORDERS
        assert sorted(
            (tuple(row) for row in world.spark.table(f"{database}.t").select("order").collect()), key=str
        ) == (ORDERS)
        assert sorted(each.name for each in world.folder.iterdir()) == ["base", "state", "table"]
    finally:
        world.spark.sql(f"DROP DATABASE {database} CASCADE")


def test_a_run_to_the_end_waits_for_a_batch_however_long_it_takes(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not a failure; and who stops the wait is told that the end was not reached."""
    monkeypatch.setattr(queries_module, "QUIET_S", 0.0)
    began, go_on = threading.Event(), threading.Event()
    answers: list[bool] = []

    def slow(frame: DataFrame) -> None:
        began.set()
        assert go_on.wait(60)

    def run_to_end() -> None:
        answers.append(queries.run_to_end())

    for expected, stop_s in ((False, 0.0), (True, 60.0)):  # a batch that was let go on ends by itself
        monkeypatch.setattr(query_module, "STOP_S", stop_s)
        world.put(RECEIPTS[:1])
        began.clear()
        queries = world.queries(world.pipeline().for_each_batch(slow))
        queries.start()
        assert began.wait(60)
        running = threading.Thread(target=run_to_end)
        running.start()
        eventually(queries._queries[0]._closing.is_set, "it waits for the batch")
        if expected:
            go_on.set()
        else:
            queries.stop()
        running.join(60)
        assert answers.pop() is expected
        if not expected:
            go_on.set()
            eventually(lambda: not world.spark.streams.active, "the batch that was cut short has ended")
            go_on.clear()


def test_retention_that_overtook_a_stopped_query_is_counted_and_said(world: QueryWorld) -> None:
    """As for the lanes of a run: it goes on, unless it is told to halt."""
    pipeline = world.pipeline().write_table(world.table, name="table")
    topic = f"{world.group}.charge"
    world.put(RECEIPTS[:3])
    world.run(pipeline)
    (positions,) = planned(world.checkpoint())
    (partition,) = [number for number, at in positions.topics[topic].partitions.items() if at == 3]
    world.put(RECEIPTS[3:])
    delete_records(world.bootstrap, topic, before=15, partition=partition)
    told = world.run(pipeline).statistics()["table"]
    assert told == {**told, "state": "done", "rows": 5, "lag": 0, "lost_to_retention": 12}
    assert world.rows("order", table=literal(world.table)) == sorted(((n,) for n in (0, 1, 2, *range(15, 20))), key=str)
