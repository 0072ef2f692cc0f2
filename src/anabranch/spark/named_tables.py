"""Tables of files that have a name in the session's catalog.

They are written as folders are, and the catalog is told. Spark's default catalog lives in memory and forgets the table
with the process, while its files stay: so a table that is missing from the catalog is made over what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.core.errors import UsageError
from anabranch.spark.tables import Batch, FolderTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from anabranch.pipeline.queries import TableSink

_SESSION_CATALOG: Final = "spark_catalog"


def is_foreign(spark: SparkSession, name: str) -> bool:
    """Tell whether a name is one of another catalog (Iceberg, Unity…), which keeps its own files."""
    parts = name.split(".")
    catalog = parts[0] if len(parts) == 3 else spark.catalog.currentCatalog()
    return catalog != _SESSION_CATALOG


class NamedTable:
    """A folder of files with a name in the catalog."""

    def __init__(self, spark: SparkSession, sink: TableSink) -> None:
        """Find where its files are, or will be."""
        self._spark = spark
        self._sink = sink
        *above, table = sink.target.split(".")
        database = above[-1] if above else spark.catalog.currentDatabase()
        if not spark.catalog.databaseExists(database):
            raise UsageError(f"write_table({sink.target!r}): there is no database {database!r}; make it first")
        self._name = f"`{database}`.`{table}`"
        location = spark.catalog.getDatabase(database).locationUri
        self._folder = FolderTable(spark, sink, self._known_location() or f"{location}/{table}")

    def prepare(self, schema: StructType) -> None:
        """Check that the rows fit, and make the table, or give it the columns that are new."""
        self._folder.prepare(schema)
        if not self._exists():
            self._create(schema)
            return
        known = {field.name.lower() for field in self._spark.table(self._name).schema.fields}
        added = [field for field in schema.fields if field.name.lower() not in known]
        if added:
            columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in added)
            self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({columns})")

    def append(self, frame: DataFrame, batch: Batch) -> None:
        """Put the files of one batch into the table, and tell the catalog."""
        self._folder.append(frame, batch)
        if self._sink.partition_by:
            self._spark.catalog.recoverPartitions(self._name)
        self._spark.catalog.refreshTable(self._name)

    def _create(self, schema: StructType) -> None:
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
        by = ", ".join(f"`{name}`" for name in self._sink.partition_by)
        partitioned = f" PARTITIONED BY ({by})" if by else ""
        location = self._folder.location.replace("'", "\\'")
        self._spark.sql(
            f"CREATE TABLE {self._name} ({columns}) USING {self._sink.format}{partitioned} LOCATION '{location}'"
        )
        if by:
            self._spark.catalog.recoverPartitions(self._name)

    def _exists(self) -> bool:
        return self._spark.catalog.tableExists(self._name)

    def _known_location(self) -> str | None:
        """Return where the catalog says that the files are; refuse a table that is none of files of this format."""
        if not self._exists():
            return None
        told = {
            row["col_name"]: row["data_type"]
            for row in self._spark.sql(f"DESCRIBE TABLE EXTENDED {self._name}").collect()
        }
        provider = str(told.get("Provider", "")).lower()
        if provider != self._sink.format or not told.get("Location"):
            raise UsageError(
                f"write_table({self._sink.target!r}): the catalog has it as {provider or told.get('Type', 'a view')}, "
                f"not as {self._sink.format}; say format={provider!r}, or choose another name"
            )
        return str(told["Location"])
