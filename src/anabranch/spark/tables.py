"""Append micro-batches to tables.

A table of files gets each row once, also through crashes. Spark's own file sink promises that too, but by a log beside
the files that only Spark reads, and by batch numbers: when the checkpoint is lost, and numbers begin at 0 again, it
takes new batches for old ones and drops them without a word. So here

1. a batch is written to a folder that no reader looks into, `_anabranch/<batch>`;
2. if it may be a repeated one, which only the first after a start can be, the files are removed that it had put into
   the table before; its files bear the query's id and the batch's number, so they are known;
3. its files are moved into the table, and the folder goes.

A crash leaves a part of one batch in the table at most, and the next start replaces it: the same offsets, since Spark
wrote them down before the batch began. When the checkpoint is lost, the topic is read again from its start: rows twice,
none missing.

Tables that are not folders of files (Delta, Iceberg, others) are appended to by their own writer, with the query's id
and the batch's number as Delta wants them (`txnAppId`, `txnVersion`): it then takes each batch once. For others a
batch may be there twice after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from anabranch.core.errors import UsageError
from anabranch.pipeline.queries import EXACT_FORMATS
from anabranch.spark.hadoop_folder import HadoopFolder, literal
from anabranch.spark.table_columns import TableColumns, conflict, joined, restored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from anabranch.pipeline.queries import TableSink

OWN: Final = "_anabranch"
COLUMNS: Final = f"{OWN}/columns.json"
_TYPED: Final = frozenset({"parquet", "orc"})


class Batch(NamedTuple):
    """Which micro-batch of which query."""

    query_id: str
    number: int
    may_be_repeated: bool = True

    @property
    def tag(self) -> str:
        """Return how the names of its files begin."""
        return f"part-{self.query_id}-{self.number:010d}-"


class Table(Protocol):
    """Where rows are appended."""

    def prepare(self, schema: StructType) -> None:
        """Make it ready for rows of this kind; raise UsageError if they do not fit."""

    def append(self, frame: DataFrame, batch: Batch) -> None:
        """Append one micro-batch."""


def open_table(spark: SparkSession, sink: TableSink) -> Table:
    """Return the table; makes nothing yet."""
    if sink.format not in EXACT_FORMATS:
        return ForeignTable(sink)
    if sink.is_path:
        return FolderTable(spark, sink, sink.target)
    from anabranch.spark.named_tables import NamedTable, is_foreign

    return ForeignTable(sink) if is_foreign(spark, sink.target) else NamedTable(spark, sink)


class FolderTable:
    """A folder of files."""

    def __init__(self, spark: SparkSession, sink: TableSink, location: str) -> None:
        """Find it; nothing is made yet."""
        self._spark = spark
        self._sink = sink
        self._folder = HadoopFolder(spark, location)

    @property
    def location(self) -> str:
        """Return where it is, with its file system."""
        return self._folder.location

    def prepare(self, schema: StructType) -> None:
        """Check that rows of this kind fit beside those that are there, and note their columns."""
        self._check_partitions(schema)
        known = self._known()
        columns = TableColumns(schema, self._sink.partition_by)
        if known is not None:
            self._check(known, schema)
            columns = TableColumns(joined(known.schema, schema), self._sink.partition_by)
        if columns != known:
            self._folder.write_text(COLUMNS, columns.stored())

    def append(self, frame: DataFrame, batch: Batch) -> None:
        """Put the files of one batch into the table, once."""
        staged = f"{OWN}/{batch.query_id}-{batch.number}"
        writer = frame.write.format(self._sink.format).mode("overwrite").options(**dict(self._sink.options))
        writer.partitionBy(*self._sink.partition_by).save(f"{self.location}/{staged}")
        if batch.may_be_repeated:
            depth = "*/" * len(self._sink.partition_by)
            for name in self._folder.matching(f"{depth}{batch.tag}*"):
                self._folder.delete(name)
        for number, name in enumerate(sorted(self._folder.files(staged))):
            place, _, file = name.removeprefix(f"{staged}/").rpartition("/")
            suffix = file.partition(".")[2]
            self._folder.move(name, f"{place}/{batch.tag}{number:05d}.{suffix}".lstrip("/"))
        self._folder.delete(staged)

    def _known(self) -> TableColumns | None:
        """Return what the table has had so far; its files are asked where nothing is noted."""
        if self._folder.exists(COLUMNS):
            noted = restored(self._folder.read_text(COLUMNS))
            if noted is not None:
                return noted
        if self._sink.format not in _TYPED or not self._folder.exists() or not any(self._folder.files()):
            return None
        found = self._spark.read.format(self._sink.format).option("mergeSchema", True).load(literal(self.location))
        return TableColumns(found.schema, self._sink.partition_by)

    def _check(self, known: TableColumns, schema: StructType) -> None:
        if known.partition_by != self._sink.partition_by:
            had = ", ".join(known.partition_by) or "nothing"
            raise UsageError(
                f"write_table({self._sink.target!r}): the table is partitioned by {had}; say so with partition_by, "
                "or write to another table"
            )
        problem = conflict(known.schema, schema) if self._sink.format in _TYPED else None
        if problem is not None:
            raise UsageError(
                f"write_table({self._sink.target!r}): {problem}, and a table with both could not be read: "
                "cast it with a transform, or write to another table"
            )

    def _check_partitions(self, schema: StructType) -> None:
        missing = [name for name in self._sink.partition_by if name not in schema.names]
        if missing:
            raise UsageError(
                f"write_table({self._sink.target!r}): there is no column {missing[0]!r} to partition by; "
                f"there are {', '.join(schema.names)}"
            )


class ForeignTable:
    """A table of a format that has a writer of its own."""

    def __init__(self, sink: TableSink) -> None:
        """Remember what to write to."""
        self._sink = sink

    def prepare(self, schema: StructType) -> None:
        """Leave it to the format."""

    def append(self, frame: DataFrame, batch: Batch) -> None:
        """Append by the format's own writer; Delta takes a batch that it has already had for what it is."""
        options: dict[str, Any] = {"txnAppId": batch.query_id, "txnVersion": batch.number, **dict(self._sink.options)}
        writer = frame.write.format(self._sink.format).mode("append").options(**options)
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        if self._sink.is_path:
            writer.save(self._sink.target)
        else:
            writer.saveAsTable(self._sink.target)
