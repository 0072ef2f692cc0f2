"""What people write first: Structured Streaming with `foreachBatch`, the handler inline, a retry as a loop.

The source is `format("anabranch")`; Spark's own Kafka connector would do the same here. There is a Spark task per
partition, all of them at once, and each handles its rows one after another. Notes have the form of `spark_works`.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_works import failing
from works import RETRY_S, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(spark: SparkSession, work: Work, bootstrap: str, topic: str, folder: Path, *, to_end: bool) -> StreamingQuery:
    """Start the query; it ends by itself if it shall only read what there is."""
    handle_rows = _handler_of(work.sleep_s, RETRY_S, failing(work), str(folder))

    def handle(frame: DataFrame, _batch: int) -> None:
        frame.select("value").foreachPartition(handle_rows)

    source = spark.readStream.format("anabranch").option("kafka.bootstrap.servers", bootstrap)
    frame = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    writer = frame.writeStream.foreachBatch(handle).option("checkpointLocation", str(folder / "checkpoint"))
    return (writer.trigger(availableNow=True) if to_end else writer.trigger(processingTime="0 seconds")).start()


def _handler_of(sleep_s: float, retry_s: float, left: dict[bytes, int], folder: str) -> Callable[[Iterator[Any]], None]:
    """Make the function that Spark sends to its workers, which do not find this module: so it needs nothing of it."""

    def handle_rows(rows: Iterator[Any]) -> None:
        values: list[bytes] = []
        begun: list[float] = []
        ended: list[float] = []
        failed: list[int] = []
        used = time.process_time()
        for row in rows:
            value = bytes(row.value)
            for _attempt in range(1 + left.get(value[:14], 0)):
                if values and values[-1] == value:
                    failed.append(len(values) - 1)
                    time.sleep(retry_s)
                values.append(value)
                begun.append(time.perf_counter())
                time.sleep(sleep_s)
                ended.append(time.perf_counter())
        notes = {
            "values": [value.rstrip(b"x").decode() for value in values],
            "begun": begun,
            "ended": ended,
            "failed": failed,
            "cpu_s": time.process_time() - used,
            "rss_mib": 0.0,
        }
        name = uuid.uuid4().hex
        Path(folder, f"{name}.part").write_text(json.dumps(notes), encoding="ascii")
        Path(folder, f"{name}.part").rename(Path(folder, f"{name}.json"))

    return handle_rows
