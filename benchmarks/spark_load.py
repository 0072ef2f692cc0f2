"""An open-loop producer in a process of its own: it sends when a record is due, whatever became of those before.

It reads a JSON description on standard input and prints how late it was itself. A record says when it was meant to be
sent; so a pause of anyone, this process included, counts as latency of every record that it delayed.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Producer
from works import Work

TICK_S = 0.001
LINGER_MS = 1
"""As someone sets it who cares for latency: the library's default is 5."""


def value_of(work: Work, number: int, sent_at: float) -> tuple[bytes, bytes]:
    """Answer key and value of the n-th record, as in `works`, with the intended send time."""
    key, sequence = number % work.keys, number // work.keys
    return b"key-%05d" % key, (b"%05d:%08d:%d" % (key, sequence, sent_at * 1e9)).ljust(100, b"x")


def send(work: Work, bootstrap: str, topic: str, rate: int, partitions: int) -> float:
    """Send all records of a work at a rate; answer by how much the latest of them was sent too late."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": LINGER_MS})
    producer.produce(f"{topic}.out", b"connect")
    producer.flush(10)
    clock, late_s, number = time.perf_counter, 0.0, 0
    begun = clock() + TICK_S
    while number < work.records:
        now = clock()
        while number < work.records and (due := begun + number / rate) <= now:
            key, value = value_of(work, number, due)
            producer.produce(topic, value, key, partition=number % work.keys % partitions)
            number += 1
            late_s = max(late_s, now - due)
        producer.poll(0)
        time.sleep(TICK_S)
    if producer.flush(30):
        raise SystemExit("the load could not be sent")
    return late_s


if __name__ == "__main__":
    asked = json.loads(sys.stdin.readline())
    late_s = send(Work(**asked["work"]), asked["bootstrap"], asked["topic"], asked["rate"], asked["partitions"])
    print(json.dumps({"late_s": late_s}))
