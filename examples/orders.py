"""A pipeline as one would run it: typed records, a filter, a shared client, outputs, dead letters.

    python examples/orders.py

Against a broker of yours, from this folder: `anabranch run orders:billing --engine async`.
"""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from confluent_kafka import Producer

from anabranch import Broker, Context, Pipeline, Retry


@dataclass
class Order:
    """What is read."""

    customer: str
    item: str
    cents: int


@dataclass
class Receipt:
    """What is written."""

    customer: str
    cents: int
    total_cents: int


class Bank:
    """A client of some service, with an account for each customer."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.seen: set[str] = set()

    async def charge(self, customer: str, cents: int, request_id: str) -> int:
        """Charge once for each request id: a repeated call changes nothing."""
        if cents > 100_000:
            raise ValueError(f"{cents} cents are over the limit")
        if request_id not in self.seen:
            self.seen.add(request_id)
            self.totals[customer] = self.totals.get(customer, 0) + cents
        return self.totals[customer]


@asynccontextmanager
async def open_bank() -> AsyncIterator[Bank]:
    """Open what handlers share: once in each process, closed at its end."""
    bank = Bank()
    print("bank opened", flush=True)
    yield bank
    print(f"bank closed with {bank.totals}", flush=True)


def is_payable(order: Order) -> bool:
    """Nothing is to be paid for what is free."""
    return order.cents > 0


async def charge(order: Order, ctx: Context) -> Receipt:
    """Charge the order and say so."""
    bank: Bank = ctx.resources
    total = await bank.charge(order.customer, order.cents, ctx.request_id)
    return Receipt(order.customer, order.cents, total)


billing = (
    Pipeline("billing")
    .read("orders", Order)
    .filter(is_payable)
    .process(charge, concurrency=64, timeout_s=10, retry=Retry(attempts=5, poison=(ValueError,)))
    .write("receipts")
    .dead_letters("billing.dead")
    .lifespan(open_bank)
)

ORDERS = (
    b'{"customer": "ann", "item": "coffee", "cents": 350}',
    b'{"customer": "bob", "item": "water", "cents": 0}',
    b'{"customer": "ann", "item": "cake", "cents": 420}',
    b'{"customer": "bob", "item": "villa", "cents": 90000000}',
    b'{"customer": "eve", "item": "tea"}',
    b'{"customer": "bob", "item": "tea", "cents": 210}',
)


def main() -> int:
    """Send orders, bill them, and print receipts and dead letters."""
    print(billing.explain(), flush=True)
    with Broker() as broker:
        with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            for order in ORDERS:
                producer.produce("orders", key=order[14:17], value=order)
        code = billing.run(engine="async", bootstrap=broker.bootstrap, until="end")
        for topic in ("receipts", "billing.dead"):
            print(f"--- anabranch consume {topic} -e -f '%k: %s\\n'", flush=True)
            consume = [sys.executable, "-m", "anabranch", "consume", topic, "-e", "-f", "%k: %s\\n"]
            subprocess.run([*consume, "-b", broker.bootstrap], check=True)
        return code


if __name__ == "__main__":
    sys.exit(main())
