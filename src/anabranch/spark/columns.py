"""The columns of `format("anabranch")`, and how records become Arrow batches of them.

The names and types are those of Spark's Kafka source. A batch is built by name from the schema that was declared: any
mismatch between the two fails the Spark task, so there is one table for both.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from anabranch.kafka.extents import Range
    from anabranch.kafka.ranges import Rows

COLUMNS: Final = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def schema_of(*, headers: bool) -> StructType:
    """Return the schema of a read."""
    return StructType([StructField(name, type_) for name, type_ in COLUMNS.items() if headers or name != "headers"])


def column_names(schema: StructType) -> list[str]:
    """Return the names of the columns that are wanted; refuse what no record has."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise UsageError(f"column {field.name}: a record has {', '.join(COLUMNS)}; leave .schema(…) out")
        if field.dataType != COLUMNS[field.name]:
            wanted, given = COLUMNS[field.name].simpleString(), field.dataType.simpleString()
            raise UsageError(f"column {field.name} is {wanted}, not {given}; leave .schema(…) out")
    return [field.name for field in schema.fields]


def batch_of(wanted: Range, rows: Rows, names: Sequence[str]) -> pa.RecordBatch:
    """Return records as an Arrow batch with these columns."""
    import pyarrow as pa

    types = _types()
    arrays = [_array(name, types[name], wanted, rows) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([pa.field(name, types[name]) for name in names]))


def _types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }


def _array(name: str, type_: pa.DataType, wanted: Range, rows: Rows) -> pa.Array:
    import pyarrow as pa

    count = len(rows.offsets)
    if name == "headers":
        return _headers(rows, type_)
    if name == "topic":
        return pa.repeat(pa.scalar(wanted.topic, type_), count)
    if name == "partition":
        return pa.repeat(pa.scalar(wanted.partition, type_), count)
    if name == "timestamp":
        return pa.array([None if time_ms < 0 else time_ms * 1000 for time_ms in rows.timestamps_ms], type_)
    if name == "timestampType":
        # Spark counts from 0 (CreateTime) and has -1 for none; the library from 1, and has 0.
        return pa.array([each - 1 for each in rows.timestamp_types], type_)
    columns: dict[str, Sequence[Any]] = {"key": rows.keys, "value": rows.values, "offset": rows.offsets}
    return pa.array(columns[name], type_)


def _headers(rows: Rows, type_: pa.DataType) -> pa.Array:
    """Return the headers as lists; null where a record has none, as Spark's Kafka source has it."""
    import pyarrow as pa

    found = [each or () for each in rows.headers]
    pairs = [pair for each in found for pair in each]
    header = type_.value_type
    items = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in pairs], pa.string()), pa.array([value for _, value in pairs], pa.binary())],
        fields=[header.field(0), header.field(1)],
    )
    starts = list(accumulate(map(len, found), initial=0))
    offsets = [at if each else None for at, each in zip(starts, found, strict=False)] + [starts[-1]]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=type_)
