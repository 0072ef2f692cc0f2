"""A handler that fails at first: its key waits and tries again, and nobody else does.

    python examples/retries.py

Or against a broker of yours, from this folder: `anabranch broker`, then in other terminals
`anabranch run retries:billing --engine async` and `echo bob:bob-1 | anabranch produce orders -K :`.
"""

import sys

from confluent_kafka import Producer

from anabranch import Broker, Context, Pipeline, Retry


async def charge(order: str, ctx: Context) -> None:
    """Charge an order; the payment service is down for Bob, for a while."""
    if order == "bob-1" and ctx.attempt < 4:
        print(f"{order}: attempt {ctx.attempt} failed", flush=True)
        raise ConnectionError("503 from the payment service")
    print(f"{order}: charged at attempt {ctx.attempt}", flush=True)


billing = (
    Pipeline("billing")
    .read("orders", str)
    .process(charge, concurrency=8, retry=Retry(attempts=5, initial_s=0.1, max_s=1.0))
)


def main() -> int:
    """Send orders of three people and charge them; Bob's second order waits for his first, no other order does."""
    with Broker() as broker:
        with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            for order in ("bob-1", "ann-1", "bob-2", "eve-1", "ann-2"):
                producer.produce("orders", key=order.partition("-")[0], value=order)
        return billing.run(engine="async", bootstrap=broker.bootstrap, until="end")


if __name__ == "__main__":
    sys.exit(main())
