"""What a task yields is what was declared: any mismatch would fail it."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from anabranch.core.errors import UsageError
from anabranch.kafka.extents import Range
from anabranch.kafka.ranges import Rows
from anabranch.spark.columns import COLUMNS, batch_of, column_names, schema_of

RANGE = Range("orders", "id-1", 3, 10, 20)
ROWS = Rows(
    [10, 12],
    [b"key", None],
    [None, b"\xff"],
    [1_700_000_000_123, -1],
    [1, 0],
    [[("a", b"1"), ("b", None)], None],
)


@pytest.mark.parametrize("headers", [True, False])
def test_a_batch_has_the_schema_that_spark_expects(headers: bool) -> None:
    """Names, types, time zone, nullability, also of the items in a list: compared as Spark's worker does it."""
    schema = schema_of(headers=headers)
    batch = batch_of(RANGE, ROWS, column_names(schema))
    assert to_arrow_schema(schema, timezone="UTC").equals(batch.schema)


def test_rows_are_what_the_records_are() -> None:
    """Nulls stay nulls; a record without a time has none; types are numbered as Spark does it."""
    batch = batch_of(RANGE, ROWS, list(COLUMNS))
    moment = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC)
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert batch.to_pylist() == [
        {
            "key": b"key",
            "value": None,
            "topic": "orders",
            "partition": 3,
            "offset": 10,
            "timestamp": moment,
            "timestampType": 0,
            "headers": headers,
        },
        {
            "key": None,
            "value": b"\xff",
            "topic": "orders",
            "partition": 3,
            "offset": 12,
            "timestamp": None,
            "timestampType": -1,
            "headers": None,
        },
    ]


def test_columns_are_built_by_name_in_the_order_that_is_declared() -> None:
    """A schema with fewer columns in another order costs less and fits."""
    names = column_names(StructType([StructField("offset", LongType()), StructField("topic", StringType())]))
    assert batch_of(RANGE, ROWS, names) == pa.record_batch({"offset": [10, 12], "topic": ["orders", "orders"]})


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (StructField("amount", LongType()), "column amount: a record has key, value"),
        (StructField("value", StringType()), "column value is binary, not string"),
    ],
)
def test_a_schema_that_no_record_has_is_refused(field: StructField, sentence: str) -> None:
    """Before any task fails of it."""
    with pytest.raises(UsageError, match=sentence):
        column_names(StructType([field]))
