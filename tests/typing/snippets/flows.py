"""What an editor knows about a pipeline. Each comment says what mypy must say about its line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeGuard, reveal_type

import msgspec
from pyspark.sql import DataFrame, SparkSession

from anabranch import Context, Out, Pipeline, Record, Retry


@dataclass
class Order:
    id: str
    total: int


class Paid(Order):
    pass


class Receipt(msgspec.Struct):
    total: int


class Event(TypedDict):
    id: str


async def charge(order: Order) -> Receipt:
    return Receipt(order.total)


async def charge_with_context(order: Order, ctx: Context) -> Receipt:
    return Receipt(ctx.attempt)


async def charge_some(order: Order, ctx: Context) -> Receipt | None:
    return None


async def charge_silently(order: Order) -> None:
    return None


async def charge_out(order: Order) -> Out[Receipt]:
    return Out(Receipt(order.total), key=order.id, topic="elsewhere")


async def charge_many(order: Order) -> list[Receipt]:
    return [Receipt(order.total)]


def charge_plainly(order: Order) -> Receipt:
    return Receipt(order.total)


def charge_plainly_with_context(order: Order, ctx: Context) -> Receipt | None:
    return Receipt(ctx.partition)


def is_paid(order: Order) -> TypeGuard[Paid]:
    return isinstance(order, Paid)


def is_payable(order: Order) -> bool:
    return order.total > 0


def parse(data: bytes) -> Order:
    return Order("", len(data))


def parse_record(record: Record) -> Order:
    return Order("", record.offset)


async def send(receipt: Receipt) -> str:
    return str(receipt.total)


class Charger:
    async def __call__(self, order: Order) -> Receipt:
        return Receipt(order.total)

    async def method(self, order: Order, ctx: Context) -> Receipt:
        return Receipt(order.total)


@asynccontextmanager
async def clients() -> AsyncIterator[dict[str, str]]:
    yield {}


def daily(frame: DataFrame) -> DataFrame:
    return frame


def look(frame: DataFrame) -> None:
    return None


def look_at(frame: DataFrame, batch_id: int) -> None:
    return None


spark = SparkSession.builder.getOrCreate()
empty = Pipeline("billing")
reveal_type(empty)  # Pipeline[Never]
orders = empty.read("orders", Order)
reveal_type(orders)  # Pipeline[Order]

reveal_type(empty.read("orders"))  # Pipeline[bytes]
reveal_type(empty.read(["orders", "refunds"], str))  # Pipeline[str]
reveal_type(empty.read("orders", dict[str, int]))  # Pipeline[dict[str, int]]
reveal_type(empty.read("orders", Event))  # Pipeline[Event]
reveal_type(empty.read("orders", Order | None))  # Pipeline[Any]
reveal_type(empty.read("orders", Any))  # Pipeline[Any]
reveal_type(empty.read("orders", decode=parse))  # Pipeline[Order]
reveal_type(empty.read("orders", decode=parse_record))  # Pipeline[Order]
reveal_type(empty.read("orders").decode(Order))  # Pipeline[Order]
reveal_type(empty.read("orders").decode(parse))  # Pipeline[Order]
reveal_type(empty.read("orders", Order, key=lambda record: record.key))  # Pipeline[Order]

reveal_type(orders.filter(is_payable))  # Pipeline[Order]
reveal_type(orders.filter(lambda order: order.total > 0))  # Pipeline[Order]
reveal_type(orders.filter(is_paid))  # Pipeline[Paid]
reveal_type(orders.map(lambda order: order.total))  # Pipeline[int]

reveal_type(orders.process(charge))  # Pipeline[Receipt]
reveal_type(orders.process(charge_with_context))  # Pipeline[Receipt]
reveal_type(orders.process(charge_some))  # Pipeline[Receipt]
reveal_type(orders.process(charge_out))  # Pipeline[Out[Receipt]]
reveal_type(orders.process(charge_many))  # Pipeline[list[Receipt]]
reveal_type(orders.process(charge_plainly))  # Pipeline[Receipt]
reveal_type(orders.process(charge_plainly_with_context))  # Pipeline[Receipt]
reveal_type(orders.process(lambda order: order.total))  # Pipeline[int]
reveal_type(orders.process(lambda order, ctx: order.total + ctx.offset))  # Pipeline[int]
reveal_type(orders.process(Charger()))  # Pipeline[Receipt]
reveal_type(orders.process(Charger().method))  # Pipeline[Receipt]
reveal_type(orders.process(charge).process(send))  # Pipeline[str]
reveal_type(orders.filter(is_paid).process(charge))  # Pipeline[Receipt]

silent = orders.process(charge_silently)
bases: Pipeline[Order] = orders.filter(is_paid)
whole = (
    empty.read("orders", Order, start="latest", ordering="key", null_key="ordered")
    .filter(is_payable)
    .process(charge, name="charge", concurrency=4, timeout_s=10, retry=Retry(attempts=3))
    .write("receipts")
    .dead_letters("billing.dead", ratio_max=0.1)
    .lifespan(clients)
)
reveal_type(whole)  # Pipeline[Receipt]
reveal_type(whole.run(engine="async"))  # int
reveal_type(whole.start(engine="async"))  # Run

charged = orders.process(charge)
reveal_type(charged.write_table("./receipts"))  # Pipeline[Receipt]
reveal_type(charged.write_table(Path("receipts"), "delta", partition_by="day", every_s=5))  # Pipeline[Receipt]
reveal_type(charged.transform(daily))  # Pipeline[DataFrame]
reveal_type(charged.transform(lambda frame: frame.select("total")).write("totals"))  # Pipeline[DataFrame]
reveal_type(charged.for_each_batch(look))  # Pipeline[Receipt]
reveal_type(charged.for_each_batch(look_at, output_mode="update"))  # Pipeline[Receipt]
reveal_type(charged.write("receipts").stream(spark))  # DataFrame

charged.transform(look)  # refused
charged.transform(daily).process(charge)  # refused
charged.for_each_batch(charge)  # refused
charged.for_each_batch(look, output_mode="all")  # refused
charged.write_table(7)  # refused
charged.write("receipts").stream("spark")  # refused
orders.process(send)  # refused
orders.map(len)  # refused
orders.filter(lambda order: order.amount)  # refused
orders.process(charge).process(charge)  # refused
orders.process(lambda order: order.amount)  # refused
empty.read("orders", ordering="keys")  # refused
empty.read(7)  # refused
orders.dead_letters("dead", on_dead="park")  # refused
orders.write(b"receipts")  # refused
orders.process(charge, retries=4)  # refused
orders.flat_map(charge)  # refused
