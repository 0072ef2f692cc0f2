"""Lanes and their scheduler against a dumb model: a list of records per key, and who waits for how long.

The model keeps a plain list of who is ready. A call that begins must be of the first in that list, or of the record
that holds a partition's commit back; of these not more than a few in a row. And no slot is free while someone may run.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.control.effects import Effect, Submit
from anabranch.control.events import Assigned, Completed, Fetched, Start, Tick
from anabranch.control.plane import Plane
from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.control.scheduler import FAVOURS_MAX
from anabranch.core.policies import Breaker, Retry
from anabranch.core.records import Record
from anabranch.core.work import Completion, Task, TopicPartition

PARTITIONS = [TopicPartition("orders", index) for index in range(3)]
KEYS = [b"a", b"b", b"c", b"d", b"e"]
DELAY_S = 1.0

Name = tuple[TopicPartition, bytes]


@dataclass
class DumbLane:
    """A list of offsets; the first is the head."""

    offsets: list[int]
    task: Task | None = None
    """The head's, while its call runs."""
    due: float | None = None
    """When the head is tried again, while it waits."""
    waits: int = 0
    """The number of its last wait: those that are due at the same time go in this order."""


class LanesMachine(RuleBasedStateMachine):
    """Who runs is the head of its lane, all who can do run, and nobody is passed by for ever."""

    @initialize(concurrency=st.integers(1, 4))
    def begin(self, concurrency) -> None:
        step = StepPolicy("step", concurrency, Retry(None, DELAY_S, DELAY_S, jitter=0.0), Breaker(enabled=False))
        self.concurrency = concurrency
        self.plane = Plane(PlanePolicy((step,)))
        self.plane.step(Assigned({partition: Start(0) for partition in PARTITIONS}), 0.0)
        self.now = 0.0
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.lanes: dict[Name, DumbLane] = {}
        self.ready: list[Name] = []
        self.favours = 0
        self.waits = 0

    def make_ready(self, name: Name) -> None:
        lane = self.lanes[name]
        lane.task = lane.due = None
        self.ready.append(name)

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Submit):
                for task in effect.tasks:
                    self.begun(task)

    def begun(self, task: Task) -> None:
        record = task.record
        partition = TopicPartition(record.topic, record.partition)
        name = (partition, record.key or b"")
        assert name in self.ready, "it neither runs nor waits"
        assert self.lanes[name].offsets[0] == record.offset, "it is the head of its lane"
        self.lanes[name].task = task
        if self.ready[0] == name:
            self.favours = 0
        else:
            self.favours += 1
            incomplete = [
                offset for (where, _), lane in self.lanes.items() if where == partition for offset in lane.offsets
            ]
            assert record.offset == min(incomplete), "only a blocker goes before its turn"
            assert self.favours <= FAVOURS_MAX, "after so many in a row someone else goes"
        self.ready.remove(name)

    @rule(partition=st.sampled_from(PARTITIONS), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=12))
    def arrive(self, partition, keys) -> None:
        first = self.ends[partition]
        records = [Record(*partition, first + index, key, b"v") for index, key in enumerate(keys)]
        self.ends[partition] += len(keys)
        for record, key in zip(records, keys, strict=True):
            if (partition, key) in self.lanes:
                self.lanes[partition, key].offsets.append(record.offset)
            else:
                self.lanes[partition, key] = DumbLane([record.offset])
                self.make_ready((partition, key))
        self.take(self.plane.step(Fetched(partition, records, self.ends[partition]), self.now))

    @precondition(lambda self: any(lane.task for lane in self.lanes.values()))
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data, fails) -> None:
        running = [name for name, lane in self.lanes.items() if lane.task is not None]
        chosen = data.draw(st.lists(st.sampled_from(running), min_size=1, max_size=4, unique=True))
        completions = []
        for name in chosen:
            lane = self.lanes[name]
            assert lane.task is not None
            completions.append(Completion(lane.task, (), OSError() if fails else None))
            if fails:
                self.waits += 1
                lane.task, lane.due, lane.waits = None, self.now + DELAY_S, self.waits
            else:
                del lane.offsets[0]
                if lane.offsets:
                    self.make_ready(name)
                else:
                    del self.lanes[name]
        self.take(self.plane.step(Completed(completions), self.now))

    @rule(seconds=st.sampled_from([0.3, 1.0]))
    def wait(self, seconds) -> None:
        self.now += seconds
        due = [(lane.due, lane.waits, name) for name, lane in self.lanes.items() if lane.due is not None]
        for _, _, name in sorted(one for one in due if one[0] <= self.now):
            self.make_ready(name)
        self.take(self.plane.step(Tick(), self.now))

    @invariant()
    def no_slot_is_free_while_someone_may_run(self) -> None:
        if not hasattr(self, "plane"):
            return
        self.plane.check_invariants()
        running = sum(1 for lane in self.lanes.values() if lane.task is not None)
        assert running == self.concurrency or not self.ready, "a free slot is used"
        found = self.plane.statistics()
        assert found.steps[0].running == running <= self.concurrency
        assert found.steps[0].ready_lanes == len(self.ready)
        assert found.held == sum(len(lane.offsets) for lane in self.lanes.values())


TestLanesMachine = LanesMachine.TestCase
TestLanesMachine.settings = settings(max_examples=80, stateful_step_count=50)
