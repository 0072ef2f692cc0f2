"""From the type of an output to the columns of a row; no session is needed."""

import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NotRequired, Optional, TypedDict

import msgspec
import pydantic
import pytest
from pyspark.sql import types

from anabranch import UsageError
from anabranch.spark.schema import Kind, origin_names, shape_of


class Number(enum.Enum):
    ONE = 1


class Word(enum.Enum):
    ONE = "one"


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Tree:
    value: int
    children: "list[Tree]"


class Renamed(msgspec.Struct, rename="camel", tag="renamed"):
    order_id: str


class AsArray(msgspec.Struct, array_like=True):
    order_id: str


class Nothing(msgspec.Struct):
    pass


class Pair(NamedTuple):
    left: int
    right: int


class Loose(TypedDict):
    id: str
    note: NotRequired[str]


class Model(pydantic.BaseModel):
    id: str
    secret: str = pydantic.Field(default="", exclude=True)
    item: Item
    more: "list[Model] | None" = None

    @pydantic.computed_field
    def size(self) -> int:
        return 1


class ByAlias(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(serialize_by_alias=True)
    order_id: str = pydantic.Field(serialization_alias="orderId")


@pytest.mark.parametrize(
    ("annotation", "column"),
    [
        (str, "string"),
        (int, "bigint"),
        (float, "double"),
        (bool, "boolean"),
        (bytes, "binary"),
        (bytearray, "binary"),
        (dt.datetime, "timestamp"),
        (dt.date, "date"),
        (dt.time, "string"),
        (dt.timedelta, "string"),
        (uuid.UUID, "string"),
        (decimal.Decimal, "decimal(38,18)"),
        (Number, "bigint"),
        (Word, "string"),
        (Literal["a", "b"], "string"),
        (Literal[1, 2], "bigint"),
        (int | None, "bigint"),
        (Optional[Item], "struct<name:string,count:bigint>"),  # noqa: UP045  # as people write it
        (int | float, "double"),
        (int | str, "string"),
        (list[int], "array<bigint>"),
        (Sequence[str], "array<string>"),
        (set[str], "array<string>"),
        (tuple[int, ...], "array<bigint>"),
        (tuple[int, str], "string"),
        (dict[str, Item], "map<string,struct<name:string,count:bigint>>"),
        (dict[int, float], "map<string,double>"),
        (Mapping[str, int], "map<string,bigint>"),
        (dict[str, Any], "string"),
        (dict, "string"),
        (Any, "string"),
        (object, "string"),
        (Pair, "string"),
        (AsArray, "string"),
        (Loose, "struct<id:string,note:string>"),
        (Renamed, "struct<type:string,orderId:string>"),
    ],
    ids=str,
)
def test_a_field_has_the_column_of_its_type(annotation: Any, column: str) -> None:
    """What has no column type of its own is its JSON text."""
    owner = msgspec.defstruct("Owner", [("field", annotation)])
    shape = shape_of(owner)
    assert (shape.kind, shape.type.simpleString()) == (Kind.FIELDS, f"struct<field:{column}>")


@pytest.mark.parametrize(
    ("output", "kind", "column"),
    [
        (Item, Kind.FIELDS, "struct<name:string,count:bigint>"),
        (Item | None, Kind.FIELDS, "struct<name:string,count:bigint>"),
        (Loose, Kind.FIELDS, "struct<id:string,note:string>"),
        (Model, Kind.FIELDS, "struct<id:string,item:struct<name:string,count:bigint>,more:array<string>,size:bigint>"),
        (ByAlias, Kind.FIELDS, "struct<orderId:string>"),
        (Tree, Kind.FIELDS, "struct<value:bigint,children:array<string>>"),
        (Item | Loose, Kind.TEXT, "string"),
        (Pair, Kind.TEXT, "string"),
        (Nothing, Kind.TEXT, "string"),
        (str, Kind.TEXT, "string"),
        (dict[str, Any], Kind.TEXT, "string"),
        (dt.datetime, Kind.TEXT, "string"),
        (bytes, Kind.BYTES, "binary"),
        (Any, Kind.BYTES, "binary"),
        (int, Kind.NUMBER, "bigint"),
        (bool, Kind.NUMBER, "boolean"),
        (list[Item], Kind.JSON, "array<struct<name:string,count:bigint>>"),
        (dict[str, int], Kind.JSON, "map<string,bigint>"),
        (types.StructType([types.StructField("a", types.IntegerType())]), Kind.FIELDS, "struct<a:int>"),
        (types.ArrayType(types.IntegerType()), Kind.JSON, "array<int>"),
        (types.DateType(), Kind.NUMBER, "date"),
        (types.StringType(), Kind.TEXT, "string"),
        (types.BinaryType(), Kind.BYTES, "binary"),
    ],
    ids=str,
)
def test_an_output_is_a_column_for_each_field_or_one_value(output: Any, kind: Kind, column: str) -> None:
    """Models have fields; everything else is `value`."""
    shape = shape_of(output)
    assert (shape.kind, shape.type.simpleString()) == (kind, column)
    assert shape.names == (["value"] if kind is not Kind.FIELDS else shape.type.names)


def test_a_field_keeps_its_name_and_ours_steps_aside() -> None:
    """Nobody's data is hidden by a column of ours, whatever the case of its name."""
    owner = msgspec.defstruct("Owner", [("Key", str), ("error", str)])
    names = origin_names(shape_of(owner))
    assert (names["key"], names["error"], names["topic"]) == ("origin_key", "origin_error", "topic")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (msgspec.defstruct("Twins", [("id", str), ("ID", str)]), "'id' and 'ID', which are one to Spark: rename one"),
        (msgspec.defstruct("Outer", [("inner", msgspec.defstruct("Inner", [("a", int), ("A", int)]))]), "Inner has"),
        (msgspec.defstruct("Split", [("part", Item | Tree)]), "no columns can be made for Split: .*give schema=…"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_what_has_no_columns_is_refused_with_what_to_do(output: Any, said: str) -> None:
    """At the start of a query, not in its first batch."""
    with pytest.raises(UsageError, match=said):
        shape_of(output)
