"""What queries leave on disk: checkpoints are understood, columns of tables compared, errors turned into sentences."""

import re
from pathlib import Path

import pytest
from pyspark.sql import types

from anabranch import Halted, UsageError
from anabranch.kafka.extents import START_ANEW
from anabranch.spark.checkpoint import (
    committed,
    location_of,
    newest_commit,
    only_enters,
    planned,
    query_id,
    running_id,
    spans,
)
from anabranch.spark.hadoop_folder import literal
from anabranch.spark.query_errors import ANOTHER_NAME, failure, is_final, said
from anabranch.spark.table_columns import TableColumns, conflict, joined, restored

SETTINGS = '{"batchWatermarkMs":0}'
ENTERED = '{"version": 1, "topics": {"out": {"id": "x", "positions": {"0": 0}}}}'
READ = '{"version": 1, "topics": {"out": {"id": "x", "positions": {"0": 7}}}}'


def test_a_checkpoint_tells_who_the_query_is_and_how_far_it_came(tmp_path: Path) -> None:
    """The newest offsets are those of a batch that has begun, the newest commit is of one that is done."""
    for name, text in {
        "metadata": '{"id":"7f"}',
        "offsets/0": f"v1\n{SETTINGS}\n{ENTERED}",
        "offsets/1": f"v1\n{SETTINGS}\n{READ}\n17\n-",
        "offsets/.1.crc": "",
        "commits/0": "v1\n{}",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert query_id(tmp_path) == "7f"
    assert [each.at("out", 0) for each in committed(tmp_path)] == [0]
    assert [each.at("out", 0) for each in planned(tmp_path)] == [7]
    assert newest_commit(tmp_path) == 0
    assert [(start.at("out", 0), end.at("out", 0)) for start, end in spans(tmp_path, 1)] == [(0, 7)]
    assert spans(tmp_path, 0) == []
    assert only_enters(tmp_path, 0)
    assert not only_enters(tmp_path, 1)


def test_a_query_that_never_ran_has_no_place(tmp_path: Path) -> None:
    """And is not refused for it."""
    assert (query_id(tmp_path), committed(tmp_path), planned(tmp_path), newest_commit(tmp_path)) == (None, [], [], None)
    assert not only_enters(tmp_path, 0)
    with pytest.raises(Halted, match="not there although its query runs"):
        running_id(tmp_path)


def test_hadoop_is_given_paths_as_they_are() -> None:
    """It decodes nothing: an escaped space would be another folder. Only where it takes patterns they are escaped."""
    assert location_of(Path("/x/a b é%20")) == "file:///x/a b é%20"
    assert location_of(Path("a b")) == f"file://{Path.cwd()}/a b"
    assert literal("file:/x/a b [1]{2}*?é") == r"file:/x/a b \[1\]\{2\}\*\?é"
    assert literal("a\\b") == "a\\\\b"


def test_a_first_batch_with_a_stranger_in_it_may_have_rows(tmp_path: Path) -> None:
    """A transform may have joined a source that is not ours, which reads at once."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{SETTINGS}\n{ENTERED}\n17")
    assert not only_enters(tmp_path, 0)


def struct(**columns: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in columns.items()])


LONG, TEXT = types.LongType(), types.StringType()


@pytest.mark.parametrize(
    ("new", "problem"),
    [
        (struct(id=TEXT, cents=LONG), None),
        (struct(id=TEXT), None),
        (struct(id=TEXT, cents=LONG, more=TEXT), None),
        (struct(ID=TEXT, item=struct(size=LONG)), None),
        (struct(cents=TEXT), "column cents is bigint there and would be string now"),
        (struct(item=struct(name=LONG)), "column item.name is string there and would be bigint now"),
        (struct(tags=types.ArrayType(LONG)), r"column tags\[\] is string there and would be bigint now"),
        (struct(item=TEXT), "column item is struct<name:string> there and would be string now"),
    ],
)
def test_columns_may_come_and_go_but_not_change(new: types.StructType, problem: str | None) -> None:
    """A table with one column in two types could not be read any more."""
    old = struct(id=TEXT, cents=LONG, item=struct(name=TEXT), tags=types.ArrayType(TEXT), by=types.MapType(TEXT, LONG))
    found = conflict(old, new)
    if problem is None:
        assert found is None
        assert conflict(joined(old, new), old) is None
        assert conflict(joined(old, new), new) is None
        assert len(joined(old, new).fields) == len({name.lower() for name in old.names + new.names})
    else:
        assert found is not None
        assert re.search(problem, found)


def test_columns_are_stored_with_a_version_and_believed_only_if_whole() -> None:
    """What cannot be read is as if it were not there: the files are asked instead."""
    columns = TableColumns(struct(id=TEXT, item=struct(name=TEXT)), ("day",))
    text = columns.stored()
    assert restored(text) == columns
    assert restored(text.replace('"version": 1', '"version": 2')) is None
    assert restored(text[: len(text) // 2]) is None
    assert restored("[]") is None


PYTHON = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception was raised by the Python Proxy.
Return Message: Traceback (most recent call last):
  File "/x/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "/x/app.py", line 3, in look
    raise ValueError("no room left")
ValueError: no room left
 SQLSTATE: XXKST
"""
SPARKS = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure
org.apache.spark.SparkException: Job aborted
[CAST_INVALID_INPUT] The value 'x' of the type "STRING" cannot be cast to "BIGINT"
	at org.apache.spark.sql.errors.QueryExecutionErrors$.x(QueryExecutionErrors.scala:1)
"""
OURS = """\
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
anabranch.core.errors.UsageError: topic out is another one. To begin anew, give the query another checkpointLocation
"""
LOST = "anabranch.core.errors.Halted: out/0: retention removed 5 offsets from 3 on before they were read"
TRUNCATED = (
    "anabranch.core.errors.Halted: out/0: position 9 lies beyond the end of the log, 4: the log was truncated. "
    f"To go on at 4, set option failOnDataLoss to false. {START_ANEW}"
)
OUTAGE = "Traceback\nanabranch.kafka.errors.UnreachableError: no broker answers at 127.0.0.1:1"
SOURCES = "There are [1] sources in the checkpoint offsets and now there are [2] sources requested by the query."


@pytest.mark.parametrize(
    ("text", "line", "final"),
    [
        (PYTHON, "ValueError: no room left", False),
        (SPARKS, '[CAST_INVALID_INPUT] The value \'x\' of the type "STRING" cannot be cast to "BIGINT"', False),
        (
            OURS,
            "topic out is another one. " + ANOTHER_NAME,
            True,
        ),
        (OUTAGE, "no broker answers at 127.0.0.1:1", False),
        (SOURCES, SOURCES, True),
        ("", "RuntimeError", False),
    ],
    ids=["python", "spark", "ours", "outage", "sources", "nothing"],
)
def test_a_page_of_sparks_becomes_a_line(text: str, line: str, final: bool) -> None:
    """And it is known whether another try can help."""
    error = RuntimeError(text)
    assert (said(error), is_final(error)) == (line, final)


def test_a_failure_says_that_nothing_is_lost_and_never_to_delete_a_checkpoint() -> None:
    """A query goes on where it was; where it cannot, another name begins anew."""
    halted = failure("days", RuntimeError(PYTHON), 5)
    assert isinstance(halted, Halted)
    assert str(halted) == (
        "query 'days' failed 5 times in a row: ValueError: no room left. "
        "Nothing is lost: mend it and run again, it goes on where it was"
    )
    changed = failure("days", RuntimeError(SOURCES), 1)
    assert isinstance(changed, UsageError)
    assert "Give the query another name (name=…)" in str(changed)
    assert "delete" not in str(changed)


def test_a_loss_is_not_called_none_and_names_the_option_of_a_run() -> None:
    """Who runs a pipeline has no failOnDataLoss to set."""
    lost = failure("days", RuntimeError(f"{LOST}; to go on without them, set option failOnDataLoss to false"), 1)
    assert isinstance(lost, Halted)
    assert str(lost) == (
        "query 'days' failed: out/0: retention removed 5 offsets from 3 on before they were read; "
        'to go on without them, set on_lost_to_retention="go on"'
    )
    assert str(failure("days", RuntimeError(TRUNCATED), 1)) == (
        "query 'days' failed: out/0: position 9 lies beyond the end of the log, 4: the log was truncated. "
        + ANOTHER_NAME
    )
