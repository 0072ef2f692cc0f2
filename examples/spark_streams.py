"""The outputs of a pipeline as streaming DataFrames: joined with a table, summed up by window, joined with themselves.

    python examples/spark_streams.py

A stream reads the topic that runs of the pipeline fill. So Spark may read it as often as it likes: no handler runs
because of it, as the last line shows.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from anabranch import Broker, Pipeline
from anabranch.spark.session import make_session

NINE_O_CLOCK_MS = 1_893_488_400_000
MINUTE_MS = 60_000


@dataclass
class Order:
    """What is read."""

    id: int
    customer: str
    cents: int


@dataclass
class Receipt:
    """What is written: these become columns."""

    order: int
    customer: str
    cents: int


CALLS: list[int] = []


async def charge(order: Order) -> Receipt:
    """Have an effect, once for each order."""
    CALLS.append(order.id)
    return Receipt(order.id, order.customer, order.cents)


billing = Pipeline("billing").read("orders", Order).process(charge).write("receipts")


def with_cities(receipts: DataFrame) -> DataFrame:
    """Join the stream with a static table."""
    cities = receipts.sparkSession.createDataFrame(
        [("ann", "Bern"), ("bob", "Oslo")],
        "customer STRING, city STRING",
    )
    return receipts.join(cities, "customer", "left").select("order", "customer", "city")


def by_hour(receipts: DataFrame) -> DataFrame:
    """Sum up by windows of the time that the source records have."""
    hours = receipts.withWatermark("timestamp", "10 minutes").groupBy(f.window("timestamp", "1 hour"), "customer")
    totals = hours.agg(f.sum("cents").alias("cents"))
    return totals.select(f.hour("window.start").alias("hour"), "customer", "cents")


def soon_after(receipts: DataFrame) -> DataFrame:
    """Join the stream with itself: two receipts of one customer within five minutes."""
    first = receipts.withWatermark("timestamp", "1 hour").alias("first")
    second = receipts.withWatermark("timestamp", "1 hour").alias("second")
    soon = f.expr(
        "first.customer = second.customer AND second.timestamp > first.timestamp "
        "AND second.timestamp <= first.timestamp + INTERVAL 5 MINUTES"
    )
    return first.join(second, soon).select("first.customer", "first.order", f.col("second.order").alias("then"))


def rows_of(frame: DataFrame, output_mode: str = "append") -> list[Row]:
    """Run a query over what is in the topic now, and return its rows."""
    query = (
        frame.writeStream.format("memory").queryName("shown").outputMode(output_mode).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    return frame.sparkSession.table("shown").orderBy(*frame.columns).collect()


def send_orders(bootstrap: str) -> None:
    """Send some orders, at times of their own."""
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number, (customer, cents, minute) in enumerate(
            [("ann", 350, 0), ("bob", 210, 1), ("ann", 420, 3), ("eve", 100, 30), ("bob", 500, 62), ("ann", 90, 64)]
        ):
            value = b'{"id": %d, "customer": "%s", "cents": %d}' % (number, customer.encode(), cents)
            producer.produce("orders", value, customer, timestamp=NINE_O_CLOCK_MS + minute * MINUTE_MS)


def show(spark: SparkSession, bootstrap: str) -> None:
    """Make three DataFrames of one pipeline, and print what is in them."""
    receipts = billing.stream(spark, bootstrap=bootstrap)
    for title, frame, output_mode in (
        ("with a table", with_cities(receipts), "append"),
        ("by hour", by_hour(receipts), "complete"),
        ("soon after another", soon_after(receipts), "append"),
    ):
        print(f"--- {title}", flush=True)
        for row in rows_of(frame, output_mode):
            print(*row, flush=True)


def main() -> int:
    """Charge the orders, then look at the receipts in three ways."""
    with Broker() as broker:
        send_orders(broker.bootstrap)
        code = billing.run(engine="async", bootstrap=broker.bootstrap, until="end")
        print(f"handler calls: {len(CALLS)}", flush=True)
        with make_session("streams", "local[4]", {}, Path(".anabranch/streams")) as spark:
            show(spark, broker.bootstrap)
        print(f"handler calls: {len(CALLS)}", flush=True)
        return code


if __name__ == "__main__":
    sys.exit(main())
