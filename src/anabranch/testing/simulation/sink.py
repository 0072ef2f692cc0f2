"""The scripted sink: outputs and dead letters that are acknowledged sooner or later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.work import Delivery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.core.work import Task
    from anabranch.testing.simulation.member import Member


class ScriptedSink:
    """What one member writes."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.acknowledged: set[Task] = set()
        self._written: dict[tuple[int, int, bytes], int] = {}

    def write(self, tasks: Sequence[Task]) -> None:
        """Write outputs: those of a key must come in order."""
        world = self._member.world
        for task in tasks:
            record, key = task.record, world.key_of(task.record)
            if key is not None:
                lane = (record.partition, task.epoch, key)
                if record.offset <= self._written.get(lane, -1):
                    world.violation(f"outputs of {task!r} came after those of offset {self._written[lane]}")
                self._written[lane] = record.offset
            self._acknowledge_later(task)

    def dead_letter(self, task: Task) -> None:
        """Write a dead letter."""
        self._acknowledge_later(task)

    def _acknowledge_later(self, task: Task) -> None:
        world = self._member.world
        is_slow = world.random.random() < world.scenario.faults.acknowledgement_slow
        delay_s = world.random.uniform(0, 3.0 if is_slow else 0.01)
        self._member.later(delay_s, lambda: self._acknowledge(task))

    def _acknowledge(self, task: Task) -> None:
        self.acknowledged.add(task)
        self._member.delivered([Delivery(task, None)])
