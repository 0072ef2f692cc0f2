"""What all parts of a simulated run share: time, chance, the log, the history, and what was found wrong."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from anabranch.core.history import Sent
from anabranch.core.work import TopicPartition
from anabranch.testing.history import MemoryHistory
from anabranch.testing.simulation.clock import Clock
from anabranch.testing.simulation.log import PartitionLog, ordering_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.core.history import Event
    from anabranch.core.records import Record
    from anabranch.testing.simulation.scenario import Scenario

VIOLATIONS_MAX = 20


class OneOrder(MemoryHistory):
    """A history whose stamps count up over all processes: virtual time has ties, and order is all that matters."""

    def __init__(self, world: World, member: str, pid: int) -> None:
        super().__init__(member, pid)
        self._world = world

    def record(self, events: Sequence[Event]) -> None:
        """Keep the events after everything that anybody recorded before."""
        self._world.recorded += 1
        self.now_ns = self._world.recorded
        super().record(events)


class World:
    """The surroundings of the members."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.clock = Clock()
        self.random = Random(scenario.seed * 2 + 1)
        self.recorded = 0
        self.histories: list[OneOrder] = []
        self.frozen: set[str] = set()
        """Processes that were frozen past their session: what they do late is counted apart."""
        self.violations: list[str] = []
        self.steps = 0
        self.settled: set[tuple[TopicPartition, int]] = set()
        """Which offsets have been settled by anybody."""
        self.skipped = 0
        self.late = 0
        self.logs: dict[TopicPartition, PartitionLog] = {}
        for number in range(scenario.partitions):
            partition = TopicPartition("orders", number)
            self.logs[partition] = PartitionLog(partition, scenario, self.random)
        self._sender = self.history("sender", 1)
        self._sequences: dict[tuple[TopicPartition, bytes | None], int] = {}

    def history(self, member: str, pid: int) -> OneOrder:
        """Open the history of one process."""
        self.histories.append(OneOrder(self, member, pid))
        return self.histories[-1]

    def violation(self, sentence: str) -> None:
        """Note that something must not have been."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"at {self.clock.now:.4f} s: {sentence}")

    def key_of(self, record: Record) -> bytes | None:
        """Say which records keep their order with this one."""
        return ordering_key(self.scenario, record)

    def append(self, log: PartitionLog) -> None:
        """Write a partition's next record."""
        record = log.records[log.visible]
        log.visible += 1
        key = self.key_of(record)
        sequence = self._sequences.get((log.partition, key), 0)
        self._sequences[log.partition, key] = sequence + 1
        self._sender.record([Sent(record.topic, record.partition, record.offset, key, sequence)])
