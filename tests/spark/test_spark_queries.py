"""The queries of a run: tables, topics and functions get every row; each table of files gets it once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f
from query_world import QueryWorld, eventually
from source_topics import add_partitions, delete_topic

from anabranch import Halted, UsageError
from anabranch.spark import query as query_module
from anabranch.spark.checkpoint import query_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from anabranch import Broker

pytestmark = pytest.mark.xdist_group("spark")

RECEIPTS = [{"order": n, "cents": 10 * n} for n in range(40)]
PAIRS = [(n, 10 * n) for n in range(40)]


@pytest.fixture
def world(spark: SparkSession, anabranch_broker: Broker, tmp_path: Path) -> Iterator[QueryWorld]:
    made = QueryWorld(spark, anabranch_broker.bootstrap, tmp_path)
    yield made
    made.close()


def sorted_pairs(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(pairs, key=str)


def by_tens(frame: DataFrame) -> DataFrame:
    return frame.withColumn("tens", (f.col("order") / 10).cast("int"))


def test_tables_topics_and_functions_get_every_row_while_the_queries_run(world: QueryWorld) -> None:
    """One pipeline, four queries over one topic, which is made with the source's partitions; statistics follow."""
    batches: list[tuple[int, int]] = []
    name = f"t_{world.group.replace('-', '_')}"
    pipeline = (
        world.pipeline()
        .write_table(world.table)
        .for_each_batch(lambda frame, number: batches.append((number, frame.count())), name="batches")
        .transform(by_tens)
        .write_table(name, partition_by="tens")
        .write(f"{world.group}.tens")
    )
    queries = world.queries(pipeline)
    queries.start()
    world.put(RECEIPTS)
    eventually(
        lambda: all((each["rows"], each["lag"]) == (40, 0) for each in queries.statistics().values()), "all is read"
    )
    assert [each["state"] for each in queries.statistics().values()] == ["running"] * 4
    queries.stop()
    assert world.rows("order", "cents") == sorted_pairs(PAIRS)
    assert sum(rows for _, rows in batches) == 40
    assert world.spark.table(name).where("tens = 3").count() == 10
    assert {
        each.name
        for each in Path(world.spark.catalog.getDatabase("default").locationUri.removeprefix("file:"), name).iterdir()
    } >= {"tens=0", "tens=3"}
    records = (
        world.spark.read.format("anabranch")
        .option("kafka.bootstrap.servers", world.bootstrap)
        .option("subscribe", f"{world.group}.tens")
        .load()
        .collect()
    )
    values = sorted((json.loads(row.value) for row in records), key=lambda value: value["order"])
    assert [(value["order"], value["tens"], value["topic"]) for value in values] == [
        (n, n // 10, "orders") for n in range(40)
    ]
    assert {bytes(row.key) for row in records} == {b"k"}
    assert {row.partition for row in records} <= {0, 1}


def test_a_query_goes_on_where_it_was(world: QueryWorld) -> None:
    """Stopped, run to the end, with more partitions: every row is there once."""
    pipeline = world.pipeline().write_table(world.table)
    world.put(RECEIPTS[:10])
    assert world.run(pipeline).statistics()["table"] == {
        "state": "done",
        "rows": 10,
        "lag": 0,
        "lost_to_retention": 0,
        "sink": f"folder {world.table} as parquet",
        "problem": "",
    }
    add_partitions(world.bootstrap, f"{world.group}.charge", 5)
    world.put(RECEIPTS[10:20])
    assert world.run(pipeline).statistics()["table"]["rows"] == 10
    queries = world.queries(pipeline)
    queries.start()
    world.put(RECEIPTS[20:])
    queries.stop(catch_up_s=30)
    assert queries.statistics()["table"] == {**queries.statistics()["table"], "state": "stopped", "lag": 0}
    assert world.rows("order", "cents") == sorted_pairs(PAIRS)


@pytest.mark.parametrize(("partition_by", "moved"), [((), "nothing"), ((), "everything"), (("tens",), "some")], ids=str)
def test_a_batch_that_is_repeated_after_a_crash_is_in_the_table_once(
    world: QueryWorld, partition_by: tuple[str, ...], moved: str
) -> None:
    """The driver dies after a batch was put into the table, in whole or in part, and before Spark committed it."""
    pipeline = world.pipeline().transform(by_tens).write_table(world.table, partition_by=partition_by)
    world.put(RECEIPTS[:20])
    world.run(pipeline)
    world.put(RECEIPTS[20:])
    world.run(pipeline)
    checkpoint = world.checkpoint()
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    files = sorted(Path(world.table).rglob(f"part-{query_id(checkpoint)}-{int(newest.name):010d}-*"))
    assert len(files) > (1 if partition_by else 0)
    if moved != "everything":
        for file in files[: len(files) if moved == "nothing" else 1]:
            file.unlink()
        staged = Path(world.table, "_anabranch", f"{query_id(checkpoint)}-{newest.name}")
        staged.mkdir()
        (staged / "part-00000.parquet").write_bytes(b"torn")
    world.run(pipeline)
    assert world.rows("order", "cents") == sorted_pairs(PAIRS)
    assert {path.name for path in Path(world.table, "_anabranch").iterdir()} <= {"columns.json", ".columns.json.crc"}


def test_a_lost_checkpoint_repeats_rows_and_drops_none(world: QueryWorld) -> None:
    """Spark's own file sink takes the new batches for old ones then, and says nothing."""
    pipeline = world.pipeline().write_table(world.table)
    world.put(RECEIPTS[:20])
    world.run(pipeline)
    world.put(RECEIPTS[20:])
    world.run(pipeline, state="another")
    rows = world.rows("order", "cents")
    assert sorted(set(rows), key=str) == sorted_pairs(PAIRS)
    assert len(rows) == 60


@dataclass
class Longer:
    order: int
    cents: int
    currency: str = "CHF"


@dataclass
class Other:
    order: int
    cents: str


async def longer(value: bytes) -> Longer:
    return Longer(1, 1)


async def other(value: bytes) -> Other:
    return Other(1, "1")


def test_a_changed_return_type_is_picked_up_by_the_same_checkpoint(world: QueryWorld) -> None:
    """Fault 25: a new field is a new column, null in older rows; one that goes is null in newer rows."""
    world.put(RECEIPTS[:1])
    world.run(world.pipeline().write_table(world.table))
    world.put([{"order": 1, "cents": 10, "currency": "NOK"}])
    queries = world.run(world.pipeline(longer).write_table(world.table))
    assert queries.statistics()["table"]["rows"] == 1
    world.put(RECEIPTS[2:3])
    world.run(world.pipeline().write_table(world.table))
    assert world.rows("order", "cents", "currency") == [(0, 0, None), (1, 10, "NOK"), (2, 20, None)]


def test_a_column_of_another_type_is_refused_before_anything_runs(world: QueryWorld) -> None:
    """Else nobody could read the table any more. The checkpoint stays as it is, and the old type goes on with it."""
    world.put(RECEIPTS[:1])
    world.run(world.pipeline().write_table(world.table))
    with pytest.raises(
        UsageError, match=r"query 'table': .*column cents is bigint there and would be string now.*cast"
    ):
        world.run(world.pipeline(other).write_table(world.table))
    with pytest.raises(UsageError, match="partitioned by nothing"):
        world.run(world.pipeline().write_table(world.table, partition_by="order"))
    with pytest.raises(UsageError, match="no column 'day' to partition by; there are order, cents"):
        world.run(world.pipeline().write_table(f"{world.table}-2", partition_by="day"))
    world.put(RECEIPTS[1:2])
    world.run(world.pipeline().write_table(world.table))
    assert world.rows("order", "cents") == [(0, 0), (1, 10)]


def test_a_table_that_others_have_written_is_looked_at(world: QueryWorld) -> None:
    """Its columns count, too."""
    world.spark.createDataFrame([(7, "x")], "order BIGINT, cents STRING").write.parquet(world.table)
    with pytest.raises(UsageError, match="column cents is string there and would be bigint now"):
        world.run(world.pipeline().write_table(world.table))


def test_a_named_table_outlives_the_catalog_that_forgot_it(world: QueryWorld) -> None:
    """Spark's default catalog lives in memory: after a restart the table is made over the files that are there."""
    name = f"t_{world.group.replace('-', '_')}"
    world.put(RECEIPTS[:1])
    world.run(world.pipeline().write_table(name))
    world.spark.sql(f"DROP TABLE {name}")  # external: the files stay
    world.put([{"order": 1, "cents": 10, "currency": "NOK"}])
    world.run(world.pipeline(longer).write_table(name))
    assert world.spark.table(name).count() == 2
    world.spark.sql(f"CREATE VIEW {name}_v AS SELECT 1 AS one")
    with pytest.raises(UsageError, match="not as parquet"):
        world.run(world.pipeline().write_table(f"{name}_v"))
    with pytest.raises(UsageError, match="no database 'nowhere'; make it first"):
        world.run(world.pipeline().write_table("nowhere.t"))


def test_a_named_table_gets_new_columns(world: QueryWorld) -> None:
    """The catalog's schema grows with the rows."""
    name = f"t_{world.group.replace('-', '_')}"
    world.put(RECEIPTS[:1])
    world.run(world.pipeline().write_table(name))
    world.put([{"order": 1, "cents": 10, "currency": "NOK"}])
    world.run(world.pipeline(longer).write_table(name))
    rows = world.spark.table(name).orderBy("order").select("order", "currency").collect()
    assert [tuple(row) for row in rows] == [(0, None), (1, "NOK")]


def test_poison_values_become_rows_with_an_error(world: QueryWorld) -> None:
    """Fault 25: nothing in the topic can stop the query."""
    world.put([b"\xff\xfe", b"", None, b"7", {"order": "x"}, {"order": 1, "cents": 10}])
    world.run(world.pipeline().write_table(world.table))
    rows = world.rows("order", "cents", "error")
    assert len(rows) == 6
    assert (1, 10, None) in rows
    assert [row[2] for row in rows].count(None) == 2


def test_a_place_in_another_topic_is_refused_with_a_sentence(world: QueryWorld) -> None:
    """Fault 25: `write` was renamed, or the topic was made again; another name begins anew, nothing is deleted."""
    pipeline = world.pipeline().write_table(world.table)
    world.put(RECEIPTS[:1])
    world.run(pipeline)
    renamed = world.pipeline().write(f"{world.group}.out")
    with pytest.raises(UsageError, match=rf"place in topic {world.group}.charge .*go to {world.group}.out now.*name=…"):
        world.run(renamed.write_table(world.table))
    delete_topic(world.bootstrap, f"{world.group}.charge")
    with pytest.raises(UsageError, match=r"deleted and made again.*name=…"):
        world.run(pipeline)
    world.put(RECEIPTS[1:2])
    world.run(world.pipeline().write_table(world.table, name="anew"))
    assert world.rows("order", "cents") == [(0, 0), (1, 10)]


def test_a_function_that_fails_is_tried_again_and_then_the_run_is_told(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch comes again under its number; when it never passes, a sentence says so, and the next run goes on."""
    monkeypatch.setattr(query_module, "BACKOFF_S", 0.01)
    monkeypatch.setattr(query_module, "ATTEMPTS_MAX", 3)
    came: list[int] = []
    broken = [True]

    def look(frame: DataFrame, number: int) -> None:
        came.append(number)
        if broken[0]:
            raise ConnectionError("the database is away")

    world.put(RECEIPTS[:1])
    queries = world.queries(world.pipeline().for_each_batch(look))
    queries.start()
    eventually(lambda: len(came) == 2, "it is tried again")
    broken[0] = False
    eventually(lambda: queries.statistics()["look"]["lag"] == 0, "it has passed")
    assert queries.failed() is None
    assert set(came) == {1}
    broken[0] = True
    world.put(RECEIPTS[1:2])
    error = eventually(queries.failed, "it has failed for good")
    assert isinstance(error, Halted)
    assert str(error) == (
        "query 'look' failed 3 times in a row: ConnectionError: the database is away. "
        "Nothing is lost: mend it and run again, it goes on where it was"
    )
    assert queries.statistics()["look"]["state"] == "failed"
    with pytest.raises(Halted):
        queries.run_to_end()
    broken[0] = False
    world.run(world.pipeline().for_each_batch(look))
    assert came[-1] == 2


def test_what_cannot_stream_is_refused_before_anything_runs(world: QueryWorld) -> None:
    """Spark's own refusal, as a sentence; a query before it is not left running."""
    counted = world.pipeline().write_table(world.table).transform(lambda frame: frame.groupBy("order").count())
    with pytest.raises(UsageError, match=r"query 'counts' cannot run on a stream: .*watermark"):
        world.run(counted.write_table(f"{world.table}-2", name="counts"))
    assert not [query for query in world.spark.streams.active if (query.name or "").startswith(world.group)]


def test_a_query_that_keeps_something_else_now_says_to_be_renamed(world: QueryWorld) -> None:
    """Fault 25: state of another kind cannot be used; the sentence names the way out, and it is not a deletion."""
    found: list[dict[str, Any]] = []

    def keep(frame: DataFrame) -> None:
        found[:] = [row.asDict() for row in frame.collect()]

    def total(*columns: str) -> Any:
        return lambda frame: frame.groupBy(*columns).agg(f.sum("cents").alias("total"))

    def pipeline(*columns: str, name: str = "totals") -> Any:
        return world.pipeline().transform(total(*columns)).for_each_batch(keep, name=name, output_mode="complete")

    world.put(RECEIPTS[:3])
    world.run(pipeline("error"))
    assert found == [{"error": None, "total": 30}]
    world.put(RECEIPTS[3:4])
    with pytest.raises(UsageError, match=r"cannot go on from where it was: .*name=…"):
        world.run(pipeline("attempts", "topic"))
    world.run(pipeline("attempts", "topic", name="by-attempts"))
    assert found == [{"attempts": 2, "topic": "orders", "total": 60}]
    world.run(pipeline("error"))
    assert found == [{"error": None, "total": 60}]


def test_a_stop_lets_a_batch_that_has_begun_end(world: QueryWorld) -> None:
    """It is committed, and does not come again."""
    import threading

    began, go_on, came = threading.Event(), threading.Event(), []

    def slow(frame: DataFrame, number: int) -> None:
        came.append(number)
        began.set()
        assert go_on.wait(30)

    world.put(RECEIPTS[:1])
    queries = world.queries(world.pipeline().for_each_batch(slow))
    queries.start()
    assert began.wait(30)
    stopping = threading.Thread(target=queries.stop)
    stopping.start()
    go_on.set()
    stopping.join()
    assert queries.statistics()["slow"] == {**queries.statistics()["slow"], "state": "stopped", "rows": 1, "lag": 0}
    world.run(world.pipeline().for_each_batch(slow))
    assert came == [1]
