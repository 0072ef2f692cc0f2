"""What a record costs in the control plane: fetched, handed out, completed, settled. Nothing runs it.

Run `python benchmarks/plane.py [records]`. Completions come in batches of 256, as an engine of 256 calls at once gives
them; `one by one` shows what a step costs by itself. Time is this process's own on the CPU; ratios count, bare numbers
follow the machine.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from typing import NamedTuple

from anabranch.control.effects import Commit, Effect, Submit
from anabranch.control.events import Assigned, CommitEnded, Completed, Event, Fetched, Start
from anabranch.control.plane import Plane
from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.core.records import Record
from anabranch.core.work import Completion, Task, TopicPartition

FETCH = 2000
HELD_MAX = 10_000


class Work(NamedTuple):
    """One line of the table."""

    name: str
    keys: int = 1000
    partitions: int = 4
    steps: int = 1
    batch: int = 256


WORKS = (
    Work("1,000 keys"),
    Work("100 keys", keys=100),
    Work("unique keys", keys=10_000_000),
    Work("100 partitions", partitions=100),
    Work("four steps", steps=4),
    Work("batches of 16", batch=16),
    Work("one by one", batch=1),
)


class Drive:
    """A plane and what is under way around it."""

    def __init__(self, work: Work, records: int) -> None:
        self.work = work
        self.plane = Plane(PlanePolicy(tuple(StepPolicy(f"step{index}") for index in range(work.steps))))
        partitions = [TopicPartition("orders", index) for index in range(work.partitions)]
        self.plane.step(Assigned({partition: Start(0) for partition in partitions}), 0.0)
        self.batches = deque(batches(partitions, work.keys, records))
        self.running: deque[Task] = deque()
        self.now = 0.0
        self.fetched_s = self.completed_s = 0.0

    def run(self) -> None:
        """Take everything through."""
        while self.batches or self.running:
            if self.batches and self.plane.statistics().held < HELD_MAX:
                self.fetched_s += self._step(self.batches.popleft())
            for _ in range(max(1, FETCH * self.work.steps // self.work.batch)):
                if self.running:
                    self._complete()

    def _complete(self) -> None:
        tasks = [self.running.popleft() for _ in range(min(self.work.batch, len(self.running)))]
        self.now += 1e-5 * len(tasks)
        self.completed_s += self._step(Completed([Completion(task, (), None) for task in tasks]))

    def _step(self, event: Event) -> float:
        begin = time.process_time()
        effects: list[Effect] = self.plane.step(event, self.now)
        self.plane.next_deadline()
        spent_s = time.process_time() - begin
        for effect in effects:
            if isinstance(effect, Submit):
                self.running.extend(effect.tasks)
            elif isinstance(effect, Commit):
                spent_s += self._step(CommitEnded(dict.fromkeys(effect.positions), number=effect.number))
        return spent_s


def batches(partitions: list[TopicPartition], keys: int, records: int) -> list[Fetched]:
    """Make fetches that go round the partitions; every partition has its own keys."""
    found, ends = [], dict.fromkeys(partitions, 0)
    own = max(1, keys // len(partitions))
    for number in range(records // FETCH):
        partition = partitions[number % len(partitions)]
        first = ends[partition]
        ends[partition] = end = first + FETCH
        fetched = [
            Record(*partition, offset, b"key-%d" % (offset * 7919 % own), bytes(100), (), 0, 0)
            for offset in range(first, end)
        ]
        found.append(Fetched(partition, fetched, end))
    return found


def main() -> None:
    """Print the table."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    print(f"{'':16}{'fetched':>12}{'completed':>12}{'records/s':>12}")
    for work in WORKS:
        drive = Drive(work, records)
        gc.collect()
        gc.freeze()
        drive.run()
        settled = drive.plane.statistics().handled
        fetched, completed = drive.fetched_s / settled, drive.completed_s / settled
        print(f"{work.name:16}{fetched * 1e6:>9.2f} µs{completed * 1e6:>9.2f} µs{1 / (fetched + completed):>12,.0f}")


if __name__ == "__main__":
    main()
