"""The world of a test on queries: a group with a topic of outputs that the test fills itself, as a run would."""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from source_topics import new_topic

from anabranch import Pipeline
from anabranch.kafka.client import LIBRARY_LOGGER
from anabranch.spark.queries import Queries

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import waiting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

eventually = partial(waiting.eventually, deadline_s=120.0)
"""Spark's first batch on a busy machine takes long."""

ORIGIN = [
    ("anabranch.topic", b"orders"),
    ("anabranch.partition", b"3"),
    ("anabranch.offset", b"42"),
    ("anabranch.timestamp", b"1893488400000"),
    ("anabranch.attempts", b"2"),
    ("anabranch.handled_at", b"1893488401500"),
]


@dataclass
class Receipt:
    order: int
    cents: int


async def charge(value: bytes) -> Receipt:
    return Receipt(0, 0)


class QueryWorld:
    """One group with its topics and folders."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self.group = f"group-{secrets.token_hex(4)}"
        self.source = new_topic(bootstrap, 2, f"{self.group}.orders")
        self.opened: list[Queries] = []

    @property
    def table(self) -> str:
        return str(self.folder / "table")

    def pipeline(self, handler: Any = charge, **keywords: Any) -> Pipeline[Any]:
        """Begin a pipeline over the test's source, up to its handler."""
        return Pipeline(self.group).read(self.source).process(handler, name="charge", **keywords)

    def queries(self, pipeline: Pipeline[Any], state: str = "state") -> Queries:
        """Answer the queries of a pipeline; not started."""
        made = Queries(self.spark, pipeline.plan(), self.folder / state, self.bootstrap)
        self.opened.append(made)
        return made

    def run(self, pipeline: Pipeline[Any], state: str = "state") -> Queries:
        """Run the queries of a pipeline to the end of their topic."""
        made = self.queries(pipeline, state)
        made.run_to_end()
        return made

    def put(self, values: Iterable[Any], topic: str | None = None, key: bytes = b"k") -> None:
        """Write outputs, with the headers that a run gives them: objects as JSON, bytes as they are."""
        producer = Producer({"bootstrap.servers": self.bootstrap}, logger=LIBRARY_LOGGER)
        for value in values:
            data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            producer.produce(topic or f"{self.group}.charge", data, key, headers=ORIGIN)
        assert producer.flush(20) == 0

    def rows(self, *columns: str, table: str | None = None) -> list[tuple[Any, ...]]:
        """Read the table as any reader does, in order."""
        frame = self.spark.read.option("mergeSchema", True).parquet(table or self.table)
        return sorted((tuple(row) for row in frame.select(*columns or frame.columns).collect()), key=str)

    def checkpoint(self, query: str = "table", state: str = "state") -> Path:
        return self.folder / state / "queries" / query

    def close(self) -> None:
        for each in self.opened:
            each.stop()
