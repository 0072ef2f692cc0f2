"""What a query does with a micro-batch: append it to a table, write it to a topic, or give it to a user's function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql import types

from anabranch.core.errors import UsageError
from anabranch.pipeline.queries import BatchSink, TableSink
from anabranch.spark.output_topic import make_output_topic
from anabranch.spark.tables import Batch, open_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from anabranch.pipeline.queries import Sink
    from anabranch.spark.stream import Outputs

    Write = Callable[[DataFrame, Batch], None]


def prepare_sink(spark: SparkSession, sink: Sink, outputs: Outputs, frame: DataFrame) -> tuple[DataFrame, Write]:
    """Make ready where rows go; return the frame to be streamed there, and what writes one micro-batch. May block."""
    if isinstance(sink, TableSink):
        table = open_table(spark, sink)
        table.prepare(frame.schema)
        return frame, table.append
    if isinstance(sink, BatchSink):
        function, wants_batch_id = sink.function, sink.wants_batch_id

        def call(rows: DataFrame, batch: Batch) -> None:
            function(rows, batch.number) if wants_batch_id else function(rows)

        return frame, call
    make_output_topic(sink.topic, outputs.bootstrap, outputs.kafka, (outputs.topic,))
    options = {"kafka.bootstrap.servers": outputs.bootstrap, "topic": sink.topic}
    options |= {f"kafka.{name}": value for name, value in outputs.kafka.items()}

    def write(rows: DataFrame, _: Batch) -> None:
        rows.write.format("anabranch").mode("append").options(**options).save()

    return records(frame), write


def records(frame: DataFrame) -> DataFrame:
    """Return rows as records: by their `key` and `value` columns, else all columns but `key` as a JSON object."""
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    if not kinds.keys() - {"key"}:
        raise UsageError("write: the rows have nothing but a key; select what is to be written")
    key = _bytes("key", kinds["key"]) if "key" in kinds else f.lit(None).cast("binary")
    if "value" in kinds:
        value = _bytes("value", kinds["value"])
    else:
        rest = f.struct(*(f.col(f"`{name}`") for name in frame.columns if name != "key"))
        value = f.to_json(rest, {"ignoreNullFields": "false"}).cast("binary")
    return frame.select(key.alias("key"), value.alias("value"))


def _bytes(name: str, kind: types.DataType) -> Column:
    column = f.col(name)
    if isinstance(kind, (types.StructType, types.ArrayType, types.MapType)):
        return f.to_json(column).cast("binary")
    return column if isinstance(kind, types.BinaryType) else column.cast("string").cast("binary")
