"""From the records of a topic to rows: a column for each field of an output, where it comes from, and what did not fit.

All of it is Spark's own expressions, so nothing of it runs Python, and Spark computes only the columns that are used.
Whatever the bytes are, a row comes of them: a value, or a part of one, that does not fit is null, and `error` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql import types

from anabranch.spark.schema import Kind, origin_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from anabranch.spark.schema import Shape

_HEADER: Final = "anabranch."
_UNFIT: Final = "_anabranch_unfit"
_PARSED: Final = "_anabranch_parsed"
_MILLISECONDS_MAX: Final = 253_402_300_799_999  # the end of the year 9999, where Spark's timestamps end
_ERROR_CHARACTERS: Final = 200


def rows(records: DataFrame, shape: Shape) -> DataFrame:
    """Return the rows for records that have `key`, `value` and `headers`, batch or streaming."""
    text = f.col("value").cast("string")
    origin = {**_origin(), "error": _error(shape, text)}
    names = origin_names(shape)
    ours = [column.alias(names[name]) for name, column in origin.items()]
    if shape.kind is not Kind.FIELDS:
        return records.select(_value(shape, text).alias("value"), *ours)
    # Parsed once, in a projection of its own: the columns are taken out of it in the next.
    parsed = records.select("key", "value", "headers", _parsed(shape, text).alias(_PARSED))
    return parsed.select(*(f.col(_PARSED).getField(name).alias(name) for name in shape.names), *ours)


def _origin() -> dict[str, Column]:
    return {
        "topic": _header("topic"),
        "partition": _header("partition").try_cast("int"),
        "offset": _header("offset").try_cast("bigint"),
        "key": f.col("key"),
        "timestamp": _time("timestamp"),
        "attempts": _header("attempts").try_cast("int"),
        "handled_at": _time("handled_at"),
    }


def _header(name: str) -> Column:
    """Return a header's text; null where a record has none of that name."""
    found = f.filter(f.col("headers"), lambda header: header.getField("key") == _HEADER + name)
    return f.get(found, f.lit(0)).getField("value").cast("string")


def _time(name: str) -> Column:
    milliseconds = _header(name).try_cast("bigint")
    return f.when(milliseconds.between(0, _MILLISECONDS_MAX), f.timestamp_millis(milliseconds))


def _parsed(shape: Shape, text: Column) -> Column:
    assert isinstance(shape.type, types.StructType)
    schema = types.StructType([*shape.type.fields, types.StructField(_UNFIT, types.StringType())])
    return f.from_json(text, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _UNFIT})


def _value(shape: Shape, text: Column) -> Column:
    match shape.kind:
        case Kind.TEXT:
            return f.try_validate_utf8(text)
        case Kind.NUMBER:
            return text.try_cast(shape.type)
        case Kind.JSON if isinstance(shape.type, (types.ArrayType, types.MapType)):
            return f.from_json(text, shape.type)
        case _:
            return f.col("value")


def _error(shape: Shape, text: Column) -> Column:
    """Say that a value is not what it should be, with its beginning."""
    if shape.kind is Kind.BYTES:
        return f.lit(None).cast("string")
    if shape.kind is Kind.FIELDS:
        unfit = f.col(_PARSED).isNull() | f.col(_PARSED).getField(_UNFIT).isNotNull()
    else:
        unfit = _value(shape, text).isNull()
    beginning = f.substring(f.make_valid_utf8(text), 1, _ERROR_CHARACTERS)
    return f.when(f.col("value").isNotNull() & unfit, f.concat(f.lit(f"the value is not {shape.label}: "), beginning))
