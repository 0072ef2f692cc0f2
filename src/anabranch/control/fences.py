"""Keeps a key from running in two epochs at once within this process.

A partition may go and come back while a call of it still runs: cancelled calls end when they end. Its records are then
fetched again, and the old call and the new one would overlap. So the key of every call that is left running is fenced,
and its new lane begins when the last of them has really ended. In another process nobody can know; that is the limit
which the contract names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.control.lanes import Lane, LaneKey, LaneState

if TYPE_CHECKING:
    from anabranch.control.assignment import Assignment
    from anabranch.core.work import Task, TopicPartition


class Fences:
    """The calls of old epochs that still run, by partition and key. False when there are none."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[TopicPartition, dict[LaneKey, set[Task]]] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def __len__(self) -> int:
        return len(self.calls())

    def calls(self) -> list[Task]:
        """Give the calls."""
        return [task for keys in self._calls.values() for tasks in keys.values() for task in tasks]

    def put_up(self, lane: Lane, partition: TopicPartition) -> None:
        """Fence the key of a lane whose call runs on without its assignment."""
        lane.state = LaneState.ORPHANED
        self._calls.setdefault(partition, {}).setdefault(lane.key, set()).add(lane.head)

    def take_down(self, lane: Lane, partition: TopicPartition) -> bool:
        """Note that an old call has ended; answer whether its key is free now."""
        lane.state = LaneState.ENDED
        keys = self._calls[partition]
        keys[lane.key].remove(lane.head)
        if keys[lane.key]:
            return False
        del keys[lane.key]
        if not keys:
            del self._calls[partition]
        return True

    def hold(self, assignment: Assignment) -> None:
        """Hold the lanes of fenced keys that were just made."""
        lanes = assignment.lanes[0]
        for key in self._calls.get(assignment.partition, ()):
            lane = lanes.get(key)
            if lane is not None and lane.state is LaneState.READY:
                lane.state = LaneState.FENCED
                lane.step.pass_over(lane)
