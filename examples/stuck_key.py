"""One key is stuck for ever: the others go on, and `anabranch why` says what holds the commits back.

python examples/stuck_key.py
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from confluent_kafka import Producer

from anabranch import Broker, Context, Pipeline, Retry

ORDERS = 1_000
DEADLINE_S = 60.0


async def ship(order: str, ctx: Context) -> None:
    """Ship an order; the address of key-7 is unknown, and stays so."""
    if ctx.key == b"key-7":
        raise LookupError(f"no address for {order}")


shipping = Pipeline("shipping").read("orders", str).process(ship, retry=Retry(attempts=None, initial_s=0.2, max_s=1.0))


def main() -> int:
    """Send orders of 100 keys, start, wait until only one key is left, and ask why."""
    with Broker() as broker, tempfile.TemporaryDirectory() as state_dir:
        with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            for number in range(ORDERS):
                producer.produce("orders", key=f"key-{number % 100}", value=f"order-{number}")
        run = shipping.start(engine="async", bootstrap=broker.bootstrap, state_dir=state_dir)
        until(lambda: run.statistics()["settled"] == ORDERS - ORDERS // 100)
        until(lambda: run.statistics()["partitions"]["orders/0"]["blocker_age_s"] > 1)
        where = ["-b", broker.bootstrap, "--state-dir", state_dir]
        for command in ("why", "lag"):
            print(f"--- anabranch {command} shipping", flush=True)
            subprocess.run([sys.executable, "-m", "anabranch", command, "shipping", *where], check=True)
        run.stop(drain_s=0)  # what waits for its next attempt is left to the next run
        run.join()
        print("--- anabranch why shipping, after the stop", flush=True)
        return subprocess.run([sys.executable, "-m", "anabranch", "why", "shipping", *where], check=False).returncode


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {DEADLINE_S:g} s")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
