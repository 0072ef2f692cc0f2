"""A partition while it is ours: its progress, its lanes, and what is held of it.

    OWNED ──▶ DRAINING (revoke, stop) ──▶ CLOSING (its last commit is under way) ──▶ GONE
      └──────────┴── lost ───────────────────┴───────────────────────────────────────▲

An assignment is a new object each time the partition comes to us, with an epoch that rises; whatever belongs to an
older one can be told by the object. From CLOSING on its lanes are gone, so a completion that comes late finds none.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from anabranch.control.effects import Room
from anabranch.control.lanes import LaneState
from anabranch.control.leader_epochs import LeaderEpochs
from anabranch.control.tracker import Tracker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch.control.carryover import Carryover
    from anabranch.control.gate import PartitionGate
    from anabranch.control.lanes import Lane, LaneKey
    from anabranch.core.work import Task, TopicPartition


class Phase(Enum):
    """How far a partition is ours."""

    OWNED = "owned"
    DRAINING = "draining"
    CLOSING = "closing"
    GONE = "gone"


class Assignment:
    """One partition in one epoch."""

    __slots__ = (
        "abandoned",
        "asked_at",
        "bytes",
        "carryover",
        "committed",
        "deadline",
        "epoch",
        "gate",
        "high_watermark",
        "is_changed",
        "is_revoked",
        "lanes",
        "leader_epochs",
        "metadata",
        "partition",
        "phase",
        "repeated",
        "settled",
        "tasks",
        "topic_id",
        "tracker",
    )

    def __init__(
        self,
        partition: TopicPartition,
        epoch: int,
        position: int,
        *,
        steps: int,
        gate: PartitionGate,
        topic_id: str = "",
        metadata: str = "",
        carryover: Carryover | None = None,
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.topic_id = topic_id
        self.phase = Phase.OWNED
        self.tracker = Tracker(position)
        self.carryover = carryover
        """What an earlier owner settled ahead; None as soon as all of it is behind us."""
        self.repeated: set[LaneKey] = set()
        """Keys that had a record which the carryover does not cover: what follows it in its lane is not skipped."""
        self.gate = gate
        self.lanes: list[dict[LaneKey, Lane]] = [{} for _ in range(steps)]
        self.tasks: dict[int, Task] = {}
        """What is held, by ordinal. While it is OWNED this is what is incomplete."""
        self.bytes = 0
        self.settled: list[Task] = []
        """What this step has settled and the tracker does not know yet."""
        self.committed = position
        self.metadata = metadata
        """What is stored with `committed`."""
        self.asked_at = float("-inf")
        """When its last commit was made up."""
        self.is_changed = False
        """Whether something was settled or read since the last commit was made up."""
        self.high_watermark: int | None = None
        self.leader_epochs = LeaderEpochs()
        self.deadline = 0.0
        """Until when it drains."""
        self.is_revoked = False
        """Whether someone waits for it to be released."""
        self.abandoned = 0
        """How many records had begun and were given up in a drain."""

    def __repr__(self) -> str:
        return f"<Assignment {self.partition} epoch={self.epoch} {self.phase.value} held={len(self.tasks)}>"

    def all_lanes(self) -> Iterator[Lane]:
        """Give the lanes of all steps."""
        for lanes in self.lanes:
            yield from lanes.values()

    def waiting_records(self) -> int:
        """Count the records in lanes whose head waits for its next attempt."""
        lanes = (lane for lane in self.all_lanes() if lane.state is LaneState.WAITING)
        return sum(1 + len(lane.rest or ()) for lane in lanes)

    def room(self) -> Room:
        """Say how much more may be taken in."""
        return self.gate.room(len(self.tasks), self.bytes) if self.phase is Phase.OWNED else Room(0, 0)

    def drop(self, task: Task) -> None:
        """Hold a record no longer, without settling it: whoever has the partition next does it again."""
        del self.tasks[task.ordinal]
        self.bytes -= task.bytes

    def blocker(self) -> Task | None:
        """Give the record that holds committable back, if it is held."""
        ordinal = self.tracker.blocker_ordinal
        return None if ordinal is None else self.tasks.get(ordinal)
