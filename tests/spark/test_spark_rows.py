"""Outputs become rows: typed columns, where each comes from, and null with an error for what does not fit."""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from anabranch import UsageError
from anabranch.pipeline.encoding import encode_value
from anabranch.spark.rows import rows
from anabranch.spark.schema import shape_of

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.xdist_group("spark")

RECORDS = "key binary, value binary, headers array<struct<key:string,value:binary>>"
HEADERS = [
    ("anabranch.topic", b"orders"),
    ("anabranch.partition", b"3"),
    ("anabranch.offset", b"42"),
    ("anabranch.timestamp", b"1893488400000"),
    ("anabranch.attempts", b"2"),
    ("anabranch.handled_at", b"1893488401500"),
]


@dataclass
class Item:
    name: str


@dataclass
class Receipt:
    order: str
    cents: int
    at: dt.datetime | None = None
    day: dt.date | None = None
    raw: bytes = b""
    price: decimal.Decimal | None = None
    item: Item | None = None
    tags: list[str] | None = None
    prices: dict[str, int] | None = None
    pair: tuple[int, str] | None = None
    key: str = "own"


def rows_of(spark: SparkSession, output: Any, values: list[bytes | None]) -> list[Row]:
    records = spark.createDataFrame([(b"k", value, HEADERS) for value in values], RECORDS)
    return rows(records, shape_of(output)).collect()


def test_what_a_handler_returns_comes_back_in_its_columns(spark: SparkSession) -> None:
    """Through the encoder of the pipeline and Spark's reader of JSON, for every kind of field."""
    at = dt.datetime(2031, 5, 4, 3, 2, 1, 123456, tzinfo=dt.UTC)
    receipt = Receipt(
        "A-1", 350, at, at.date(), b"\xff\x00", decimal.Decimal("12.50"), Item("cake"), ["a"], {"b": 1}, (1, "c")
    )
    (row,) = rows_of(spark, Receipt, [encode_value(receipt)])
    assert (row.order, row.cents, row.day, bytes(row.raw)) == ("A-1", 350, at.date(), b"\xff\x00")
    assert row["at"].astimezone(dt.UTC) == at
    assert (row.price, row.item.name, row.tags, row.prices) == (decimal.Decimal("12.5"), "cake", ["a"], {"b": 1})
    assert (row.pair, row.key, row.error) == ('[1,"c"]', "own", None)
    assert (row.topic, row.partition, row.offset, bytes(row.origin_key)) == ("orders", 3, 42, b"k")
    assert row.attempts == 2
    assert row.timestamp.astimezone(dt.UTC).isoformat() == "2030-01-01T09:00:00+00:00"
    assert row.handled_at.astimezone(dt.UTC).isoformat() == "2030-01-01T09:00:01.500000+00:00"


UNFIT = [
    *(b"not json", b"\xff\xfe", b"", b"7", b"null", b"[1]", b'[{"order": "x"}]'),
    *(b'{"cents": "many"}', b'{"cents": 1.5}', b'{"cents": 99999999999999999999}', b'{"item": 7}'),
    *(b'{"at": "soon"}', b'{"raw": "***"}', b'{"tags": 7}'),
]
FIT = [None, b"{}", b'{"order": "x"}', b'{"order": "x", "new": 1}', b'{"order": null}']


def test_a_value_that_does_not_fit_is_null_and_its_error_shows_it(spark: SparkSession) -> None:
    """Poison in the topic never fails a query. A missing field is null, a null value is a tombstone: both fit."""
    found = rows_of(spark, Receipt, UNFIT + FIT)
    for value, row in zip(UNFIT, found[: len(UNFIT)], strict=True):
        assert (row.order, row.cents, row["at"], row.item) == (None, None, None, None), value
        assert row.error == f"the value is not Receipt: {value.decode(errors='replace')}"
    assert [row.error for row in found[len(UNFIT) :]] == [None] * len(FIT)


def test_the_fields_that_fit_are_there_beside_one_that_does_not(spark: SparkSession) -> None:
    """And of a long value the error shows the beginning."""
    (row,) = rows_of(spark, Receipt, [b'{"order": "x", "cents": "%s"}' % (b"y" * 1000)])
    assert (row.order, row.cents) == ("x", None)
    assert row.error is not None
    assert len(row.error) < 250


@pytest.mark.parametrize(
    ("output", "values", "found"),
    [
        (int, [b"7", b"x", None], [7, None, None]),
        (str, ["é".encode(), b"\xff"], ["é", None]),
        (bytes, [b"\xff", None], [b"\xff", None]),
        (dict[str, int], [b'{"a": 1}', b"[]"], [{"a": 1}, None]),
        (dict[str, Any], [b'{"a": [1]}'], ['{"a": [1]}']),
        ("id STRING, n INT", [b'{"id": "x", "n": 1}'], ["x"]),
    ],
    ids=str,
)
def test_an_output_without_fields_is_one_value(
    spark: SparkSession, output: Any, values: list[bytes | None], found: list[Any]
) -> None:
    """What does not fit is null with an error; bytes always fit."""
    rows = rows_of(spark, output, values)
    assert [row[0] for row in rows] == found
    for value, row in zip(values, rows, strict=True):
        assert (row.error is not None) is (row[0] is None and value is not None)


def test_headers_that_are_missing_or_senseless_are_null(spark: SparkSession) -> None:
    """A record that no pipeline wrote has no origin, and a forged one cannot fail a query."""
    names = ("topic", "partition", "offset", "timestamp", "attempts", "handled_at")
    forged = [(f"anabranch.{name}", b"99999999999999999999") for name in names[1:]]
    given = [None, [], [("anabranch.offset", None)], forged, [("anabranch.timestamp", b"-1")]]
    records = spark.createDataFrame([(b"k", b"v", headers) for headers in given], RECORDS)
    for row in rows(records, shape_of(bytes)).collect():
        assert [row[name] for name in names] == [None] * 6


def test_a_schema_that_spark_does_not_understand_is_refused(spark: SparkSession) -> None:
    """With an example of one that it does."""
    with pytest.raises(UsageError, match="as in 'id STRING, cents BIGINT'"):
        shape_of("id WORD")
