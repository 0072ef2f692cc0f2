"""The DataFrame steps in the builder: what they add to the plan, and where they may stand. Spark is not needed."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch import Pipeline, UsageError
from anabranch.pipeline.queries import BatchSink, TableSink, TopicSink
from anabranch.runtime.run import start

READ = Pipeline("billing").read("orders")


async def charge(value: bytes) -> dict[str, int]:
    return {}


def daily(frame: Any) -> Any:
    return frame


def weekly(frame: Any) -> Any:
    return frame


def look(frame: Any) -> None:
    return None


def look_at(frame: Any, batch_id: int) -> None:
    return None


CHARGED = READ.process(charge)


def test_a_query_reads_the_topic_that_write_names() -> None:
    """Lanes write it, queries read it."""
    plan = CHARGED.write("receipts").write_table("./receipts").plan()
    assert (plan.sink_topic, [query.name for query in plan.queries]) == ("receipts", ["receipts"])


def test_without_a_write_the_topic_is_the_groups_and_the_steps() -> None:
    """A query needs a topic, and so there is one; without a query there is none."""
    assert CHARGED.write_table("./receipts").plan().sink_topic == "billing.charge"
    assert (
        READ.process(charge, name="a").process(charge, name="b").for_each_batch(look).plan().sink_topic == "billing.b"
    )
    assert CHARGED.plan().sink_topic is None


def test_the_outputs_go_to_the_topic_of_the_queries() -> None:
    """The last step writes where the queries read."""
    plan = CHARGED.write_table("./receipts").plan()
    finish = plan.steps[-1].finish
    assert finish is not None
    from anabranch.core.records import Record
    from anabranch.core.work import Task

    (output,) = finish(Task(Record("orders", 0, 1, b"k", b"v"), None, 0, 0, 1), {"cents": 1})
    assert (output.topic, output.key, output.value) == ("billing.charge", b"k", b'{"cents":1}')


def test_each_sink_has_the_transforms_that_stand_before_it() -> None:
    """The flow goes on behind a sink: one pipeline may have several queries."""
    pipeline = (
        CHARGED.write_table("a/all")
        .transform(daily)
        .write("days")
        .for_each_batch(look_at, name="looking", output_mode="update", every_s=5)
        .transform(weekly)
        .write_table("db.weeks", "delta", partition_by=["week"], options={"mergeSchema": True})
    )
    queries = {query.name: query for query in pipeline.plan().queries}
    assert {name: query.transforms for name, query in queries.items()} == {
        "all": (),
        "days": (daily,),
        "looking": (daily,),
        "db.weeks": (daily, weekly),
    }
    assert queries["all"].sink == TableSink("a/all", "parquet")
    assert queries["days"].sink == TopicSink("days")
    assert queries["looking"].sink == BatchSink(look_at, True, "update")
    assert queries["db.weeks"].sink == TableSink("db.weeks", "delta", ("week",), (("mergeSchema", "True"),))
    assert (queries["looking"].every_s, queries["all"].every_s) == (5.0, 1.0)
    assert pipeline.plan().sink_topic == "billing.charge"


def test_queries_are_named_after_where_their_rows_go_and_each_has_a_name_of_its_own() -> None:
    """The name is that of the checkpoint, so it must not depend on the order of others more than it has to."""
    pipeline = (
        CHARGED.write_table("s3a://lake/receipts/")
        .write_table("other/receipts")
        .write_table("db.receipts")
        .write_table(Path("täglich!"))
        .for_each_batch(lambda frame: None)
        .for_each_batch(functools.partial(look_at, batch_id=1))
    )
    assert [query.name for query in pipeline.plan().queries] == [
        *("receipts", "receipts-2", "db.receipts", "t-glich-", "query", "look_at"),
    ]


@pytest.mark.parametrize(
    ("target", "is_path"),
    [
        *((each, True) for each in ("./a", "a/b", "/a", "s3a://lake/a", "file:/a", Path("a"), "..")),
        *((each, False) for each in ("a", "db.a", "catalog.db.a")),
    ],
)
def test_a_folder_is_told_from_the_name_of_a_table(target: Any, is_path: bool) -> None:
    """A slash or a Path makes a folder."""
    (query,) = CHARGED.write_table(target).plan().queries
    assert isinstance(query.sink, TableSink)
    assert query.sink.is_path is is_path


def test_a_member_runs_the_plan_without_the_queries() -> None:
    """They are the driver's; the topic stays."""
    plan = CHARGED.write_table("./receipts").plan()
    members = plan.without_queries()
    assert (members.queries, members.spark_only, members.output_type) == ((), (), None)
    assert members.sink_topic == "billing.charge"


@pytest.mark.parametrize("engine", ["async", "inline"])
def test_other_engines_refuse_queries_at_start(engine: str) -> None:
    """Before joining the group, with what to do."""
    pipeline = CHARGED.write_table("./receipts")
    assert pipeline.plan().spark_only == ("write_table(receipts)",)
    said = rf"'write_table\(receipts\)' runs on Spark only, and the engine is {engine}: leave the step out, or run\("
    with pytest.raises(UsageError, match=said):
        start(pipeline.plan(), engine, bootstrap="127.0.0.1:1")


def test_a_schema_is_the_type_of_the_outputs() -> None:
    """It is given once, to the first DataFrame step."""
    assert CHARGED.transform(daily, schema="id STRING").write("days").plan().output_type == "id STRING"
    assert CHARGED.write_table("./a", schema=int).for_each_batch(look, schema=int).plan().output_type is int


def test_a_repr_tells_the_queries() -> None:
    """A pipeline in a log line can be read."""
    pipeline = CHARGED.transform(daily).write_table("./receipts", partition_by="day").dead_letters("dead")
    assert repr(pipeline) == (
        "<Pipeline 'billing': read orders as bytes → process charge → write billing.charge; "
        "query receipts: transform daily → folder ./receipts as parquet, partitioned by day; dead letters dead>"
    )


async def waits(frame: Any) -> Any:
    return frame


REFUSED: list[tuple[str, Callable[[], object], str]] = [
    ("table first", lambda: Pipeline("b").write_table("./a"), r"begin with \.read\(topic\)"),
    (
        "table without a handler",
        lambda: READ.write_table("./a"),
        r"put \.process\(handler\) before it, or read the topic",
    ),
    ("transform without a handler", lambda: READ.transform(daily), r"format\('anabranch'\)"),
    ("batches without a handler", lambda: READ.for_each_batch(look), r"put \.process\(handler\)"),
    ("map behind a table", lambda: CHARGED.write_table("./a").map(len), r"put \.map\(…\) before it"),
    ("process behind a transform", lambda: CHARGED.transform(daily).process(charge), "that a second pipeline reads"),
    ("filter behind a batch", lambda: CHARGED.for_each_batch(look).filter(len), r"behind \.for_each_batch\(…\)"),
    (
        "transform to nowhere",
        CHARGED.transform(daily).plan,
        r"transform\(daily\) gives goes nowhere: add \.write_table",
    ),
    (
        "second transform to nowhere",
        CHARGED.transform(daily).write("d").transform(weekly).plan,
        "weekly.* goes nowhere",
    ),
    ("not a table", lambda: CHARGED.write_table("my table"), "as 'db.receipts'"),
    ("a number for a table", lambda: CHARGED.write_table(7), "give a folder"),
    ("too many dots", lambda: CHARGED.write_table("a.b.c.d"), "give a folder"),
    ("no format", lambda: CHARGED.write_table("./a", ""), "'parquet' or 'delta'"),
    ("partitions of numbers", lambda: CHARGED.write_table("./a", partition_by=[1]), "a column's name"),
    ("never", lambda: CHARGED.write_table("./a", every_s=0), "above 0"),
    ("no interval", lambda: CHARGED.write_table("./a", every_s=None), "or leave it out"),
    ("bad name", lambda: CHARGED.write_table("./a", name="a/b"), "a name is made of"),
    ("name twice", lambda: CHARGED.write_table("./a").for_each_batch(look, name="a"), "another query has it"),
    ("async transform", lambda: CHARGED.transform(waits), "make it a plain function"),
    (
        "transform of two",
        lambda: CHARGED.transform(look_at),
        r"takes \(frame, batch_id\), but is called as look_at\(frame\)",
    ),
    ("batches of none", lambda: CHARGED.for_each_batch(lambda: None), r"\(frame\) or .*\(frame, batch_id\)"),
    ("transform not callable", lambda: CHARGED.transform("daily"), "give a function"),
    ("output mode", lambda: CHARGED.for_each_batch(look, output_mode="replace"), "'append' or 'update' or 'complete'"),
    ("late schema", lambda: CHARGED.write_table("./a").transform(daily, schema=int), "first DataFrame step"),
    ("two schemas", lambda: CHARGED.write_table("./a", schema=int).write_table("./b", schema=str), "and only there"),
    (
        "rows to the source",
        lambda: CHARGED.transform(daily).write("orders"),
        "would read what the query writes for ever",
    ),
    (
        "rows to the outputs",
        lambda: CHARGED.write("out").transform(daily).write("out"),
        "handlers' outputs are written",
    ),
    ("rows of two", lambda: CHARGED.transform(daily).write("d").transform(weekly).write("d"), "another query's rows"),
    ("rows to letters", lambda: CHARGED.transform(daily).write("d").dead_letters("d"), "dead letters are written"),
    ("letters to outputs", lambda: CHARGED.write_table("./a").dead_letters("billing.charge"), "name another topic"),
    (
        "pattern matches the outputs",
        lambda: Pipeline("b").read("^b.*").process(charge).write_table("./a"),
        "reads the pattern",
    ),
    (
        "long topic",
        lambda: Pipeline("b" * 200).read("o").process(charge, name="c" * 99).write_table("./a"),
        "at most 249",
    ),
    ("stream without a topic", lambda: CHARGED.stream(None), r"add \.write\(topic\)"),
    ("stream without a handler", lambda: READ.stream(None), r"put \.process\(handler\)"),
]


@pytest.mark.parametrize(("build", "fix"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_run_is_refused_with_a_sentence_that_names_the_fix(build: Callable[[], object], fix: str) -> None:
    """The refusal comes from the step that is wrong, before anything is opened."""
    with pytest.raises(UsageError, match=fix):
        build()
