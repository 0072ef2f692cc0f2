"""`explain()` says in words what the pipeline will do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from anabranch import Breaker, Commit, Context, Gate, Pipeline, Record, Retry


@dataclass
class Order:
    id: str


async def charge(order: Order, ctx: Context) -> dict[str, int]:
    return {}


def send(receipt: dict[str, int]) -> None:
    return None


def is_payable(order: Order) -> bool:
    return True


def by_customer(record: Record) -> bytes:
    return b""


@asynccontextmanager
async def clients() -> AsyncIterator[str]:
    yield ""


def test_a_whole_pipeline_in_words() -> None:
    """What is read and how, each step with its limits, where outputs and dead letters go, commits and the bound."""
    pipeline = (
        Pipeline("billing")
        .lifespan(clients)
        .read("orders", Order)
        .filter(is_payable)
        .process(charge, timeout_s=10)
        .map(dict)
        .process(
            send, concurrency=8, retry=Retry(attempts=None, age_s_max=60, jitter=0), breaker=Breaker(enabled=False)
        )
        .write("receipts")
        .dead_letters("billing.dead")
    )
    assert (
        pipeline.explain()
        == """\
pipeline billing (consumer group billing)
  lifespan     clients, once per process, as ctx.resources
  read         orders, from the committed position, else the earliest record
               decoded to Order; what cannot be is poison
               order: one record at a time per record key; those without a key in none
  filter       is_payable; what does not pass is settled
  process      charge(value, ctx), async; 256 calls at once in one process, time-out 10 s
               retry: 5 attempts, after 0.1 s, times 2 up to 2 s (± 20%); only its key waits
               breaker: opens when 50% of at least 20 calls on at least 5 keys fail within 10 s; probes after 1 s
  map          dict
  process      send(value), plain, in a thread; 8 calls at once in one process, no time-out
               retry: for ever, after 0.1 s, times 2 up to 2 s (± 0%), given up after 60 s; only its key waits
               breaker: off
  write        receipts, under the record's key and with its headers, unless Out says otherwise
  dead letters billing.dead; halts when more than 50% of the last 1,000 records die, or 100 in a row
  commit       every 5 s or 1,000 records, at most every 0.1 s; only what is settled
  bound        50,000 records and 64 MiB in one process; intake stops at 100% and goes on at 70%
  delivery     at least once: a crash repeats calls; ctx.request_id is the same each time"""
    )


LINES: list[tuple[Pipeline[Any], str]] = [
    (
        Pipeline("b").read("o", key=by_customer),
        "per key given by by_customer, within a partition only: records of one such key in two partitions keep",
    ),
    (Pipeline("b").read("o", null_key="ordered"), "per record key; those without a key keep theirs too"),
    (Pipeline("b").read("o", ordering="partition"), "order: one record at a time per partition"),
    (Pipeline("b").read("o").process(send, ordering="none"), "order: none; all records run side by side"),
    (Pipeline("b").read(["o", "p"], start="latest"), "o, p, from the committed position, else the latest record"),
    (Pipeline("b").read("^o", start={("o", 1): 5}), "topics that match ^o, from the committed position, else o/1@5"),
    (
        Pipeline("b").read("o", start=datetime(2031, 5, 4, tzinfo=UTC)),
        "else the first record since 2031-05-04T00:00:00+00:00",
    ),
    (Pipeline("b").read("o"), "as bytes, undecoded"),
    (Pipeline("b").read("o", Order | None), "decoded to Order | None"),
    (Pipeline("b").read("o", dict[str, Any]), "decoded to dict[str, Any]"),
    (Pipeline("b").read("o", decode=Order), "decoded by Order"),
    (Pipeline("b").read("o").filter(len).decode(str), "decode       decoded to str"),
    (Pipeline("b").read("o").write("p"), "process      identity(value), async"),
    (Pipeline("b").read("o").process(send, name="deliver"), "deliver: send(value), plain"),
    (Pipeline("b").read("o").process(send, retry=Retry(attempts=1)), "retry: none"),
    (Pipeline("b").read("o").process(send), "nothing: what handlers return is dropped, but for Out(…, topic=…)"),
    (Pipeline("b").read("o").process(send), "none: a record that cannot be handled halts the pipeline"),
    (
        Pipeline("b").read("o").process(charge).write_table("./out", partition_by="day"),
        (
            "write        b.charge, which the queries read; made when it is missing\n"
            "  rows         the columns of dict[str, int]; where each comes from, and what did not fit\n"
            "  query        out: folder ./out as parquet, partitioned by day, every 1 s\n"
            "               each row once: after a crash the last batch is put in its own place again\n"
        ),
    ),
    (
        Pipeline("b").read("o").process(lambda value: value).write("p").transform(send).write("q"),
        (
            "write        p, under the record's key and with its headers, unless Out says otherwise\n"
            "  rows         value, undecoded, as no return type or schema says what it is; where"
        ),
    ),
    (
        Pipeline("b").read("o").process(charge).transform(send).write("q"),
        "q: transform send → topic q, every 1 s\n               at least once: after a crash the rows",
    ),
    (
        Pipeline("b").read("o").process(charge).for_each_batch(send, output_mode="update", every_s=2.5),
        "send: send for each batch, output mode update, every 2.5 s\n               at least once: after a crash the",
    ),
    (
        Pipeline("b").read("o").process(charge).write_table("db.t", "delta", schema="a INT"),
        (
            "the columns of a INT; where each comes from, and what did not fit\n"
            "  query        db.t: table db.t as delta, every 1 s\n               at least once"
        ),
    ),
    (Pipeline("b", commit=Commit(interval_s=1.5)), "every 1.5 s"),
    (Pipeline("b", gate=Gate(bytes_max=1536)), "1.5 KiB"),
    (Pipeline("b", gate=Gate(bytes_max=3 * 2**30)), "3 GiB"),
    (Pipeline("b"), "cannot run yet: pipeline 'b' reads nothing: add .read(topic)"),
    (Pipeline("b").read("o"), "cannot run yet: pipeline 'b' does nothing with what it reads"),
]


@pytest.mark.parametrize(("pipeline", "line"), LINES, ids=range(len(LINES)))
def test_each_choice_is_said(pipeline: Pipeline[Any], line: str) -> None:
    """Also what an ordering key of one's own does not promise, and what is still missing."""
    assert line in pipeline.explain()
