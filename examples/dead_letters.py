"""Records that cannot be handled go to a topic of their own, byte for byte, with the reason; then they are read back.

python examples/dead_letters.py
"""

import subprocess
import sys

from confluent_kafka import Producer

from anabranch import Broker, Context, Pipeline, Poison, Retry


async def charge(amount: int, ctx: Context) -> None:
    """Charge an amount: nothing below zero can ever be charged, and the service does not know Eve today."""
    if amount < 0:
        raise Poison(f"cannot charge {amount}")
    if ctx.key == b"eve":
        raise ConnectionError("503 from the payment service")
    print(f"charged {amount}", flush=True)


billing = (
    Pipeline("billing")
    .read("amounts", int)
    .process(charge, retry=Retry(attempts=3, initial_s=0.05))
    .dead_letters("billing.dead")
)


def main() -> int:
    """Send good and bad amounts, run, and read the dead letters back."""
    with Broker() as broker:
        with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            for key, value in (("ann", "5"), ("bob", "-7"), ("ann", "six"), ("eve", "1"), ("ann", "8")):
                producer.produce("amounts", key=key, value=value)
        code = billing.run(engine="async", bootstrap=broker.bootstrap, until="end")
        if code == 0:
            print("--- anabranch consume billing.dead -e -f '%k: %s  %h\\n'", flush=True)
            consume = [sys.executable, "-m", "anabranch", "consume", "billing.dead", "-e", "-f", "%k: %s  %h\\n"]
            code = subprocess.run([*consume, "-b", broker.bootstrap], check=False).returncode
        return code


if __name__ == "__main__":
    sys.exit(main())
