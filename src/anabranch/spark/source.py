"""`format("anabranch")`: topics as DataFrames, read and written, streaming and in batches. It needs no jar.

The class is pickled by name: `anabranch` must be installed where the executors run. Readers and writers are loaded when
they are needed, since every Python process that Spark starts imports this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from anabranch.spark.columns import column_names, schema_of
from anabranch.spark.source_options import sink_options, source_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class TopicSource(DataSource):
    """What Spark makes of the options; the names of its methods are Spark's."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "anabranch"

    def schema(self) -> StructType:
        """Return the columns that a read has."""
        return schema_of(headers=self.options.get("includeHeaders", "false").strip().lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads once."""
        from anabranch.spark.readers import TopicReader

        return TopicReader(source_options(self.options, streaming=False), column_names(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 # Spark's name
        """Return what reads micro-batches."""
        from anabranch.spark.readers import TopicStreamReader

        return TopicStreamReader(source_options(self.options, streaming=True), column_names(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes once."""
        from anabranch.spark.sink import TopicWriter

        return TopicWriter(sink_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802 # Spark's
        """Return what writes micro-batches. In complete mode every batch is appended: a log has no other way."""
        from anabranch.spark.sink import TopicStreamWriter

        return TopicStreamWriter(sink_options(self.options), schema)
