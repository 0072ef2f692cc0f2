"""RUNS a pipeline on Spark: members, driver, control channel, source, sink, queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("anabranch")` known to a session; calling it again changes nothing."""
    from anabranch.spark.source import TopicSource

    spark.dataSource.register(TopicSource)
