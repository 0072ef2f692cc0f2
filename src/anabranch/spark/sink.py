"""Write DataFrames to topics: each Spark task has an idempotent producer and waits for all its acknowledgements.

So when Spark commits a batch, all of it is in Kafka. There is nothing to roll back: a batch that is run again, because
a task or the driver died, is written again (at least once). Rows of one partition of the DataFrame that go to one
partition of a topic keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from anabranch.spark.source_options import SinkOptions

OUTAGE_S: Final = 300.0
"""How long a row may wait for its acknowledgement before its Spark task fails."""

_WRITTEN: Final = ("topic", "key", "value", "headers", "partition")
_IGNORED: Final = ("offset", "timestamp", "timestampType")  # of a DataFrame that was read from a topic


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    """How many rows one Spark task wrote."""

    rows: int


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        """Check what is to be written; connects to nothing."""
        if overwrite:
            raise UsageError('a topic cannot be overwritten: write with mode("append")')
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Write the rows of one Spark task."""
        return write_rows(self._options, iterator)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check what is to be written; connects to nothing."""
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Write the rows of one Spark task."""
        return write_rows(self._options, iterator)


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Refuse columns that cannot be written."""
    fields = {field.name: field.dataType for field in schema.fields}
    if "value" not in fields:
        raise UsageError(
            "there is no column value: name one, as in select(to_json(struct('*')).alias('value')); "
            f"columns that are written are {', '.join(_WRITTEN)}"
        )
    if "topic" not in fields and options.topic is None:
        raise UsageError("where to? Name a topic with option topic, or give each row one in a column topic")
    for name, type_ in fields.items():
        if name not in _WRITTEN and name not in _IGNORED:
            raise UsageError(f"column {name} would not be written: select only {', '.join(_WRITTEN)}")
        if name in _WRITTEN and not _fits(name, type_):
            raise UsageError(f"column {name} is {type_.simpleString()}, which cannot be written; {_FIXES[name]}")


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
    """Write batches in their order, and return when every row is acknowledged."""
    from anabranch.kafka.row_writer import RowWriter
    from anabranch.kafka.settings import SinkSettings

    settings = SinkSettings(
        options.bootstrap,
        options.kafka,
        client_id="anabranch-sink",
        topic=options.topic,
        partitions=options.partitions,
        create_topics=options.create_topics,
    )
    writer: RowWriter | None = None
    for batch in batches:
        if batch.num_rows:
            writer = writer or RowWriter(settings, outage_s=OUTAGE_S)
            _write(writer, batch, options.topic)
    if writer is None:
        return RowsWritten(0)
    writer.flush()
    return RowsWritten(writer.rows)


def _write(writer: Any, batch: pa.RecordBatch, topic: str | None) -> None:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name in _WRITTEN}
    nothing: Sequence[Any] = [None] * batch.num_rows
    topics = columns.get("topic", nothing) if topic is None else [topic] * batch.num_rows
    rest = (columns.get(name, nothing) for name in ("key", "value", "headers", "partition"))
    for to, key, value, headers, partition in zip(topics, *rest, strict=True):
        if to is None:
            raise UsageError("a row has no topic: its column topic is null, and there is no option topic")
        pairs = [(each["key"], each["value"]) for each in headers] if headers else None
        writer.write(to, key, value, pairs, partition)


_FIXES: Final = {
    "topic": "make it a string",
    "key": "cast it to string or binary",
    "value": "use to_json(…), or cast it to string or binary",
    "headers": "make it array<struct<key:string,value:binary>>",
    "partition": "cast it to int",
}


def _fits(name: str, type_: DataType) -> bool:
    if name == "headers":
        header = type_.elementType if isinstance(type_, ArrayType) else None
        return (
            isinstance(header, StructType)
            and header.fieldNames() == ["key", "value"]
            and isinstance(header["key"].dataType, StringType)
            and isinstance(header["value"].dataType, BinaryType)
        )
    if name == "partition":
        return isinstance(type_, IntegerType | LongType)
    return isinstance(type_, StringType) or (name != "topic" and isinstance(type_, BinaryType))
