"""Random events, in any order that a source, an engine, a sink and a coordinator may produce, against the plane.

At the end everyone behaves, and then all records must be settled, all progress stored, and the stop complete.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from plane_world import Log, World

from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.core.policies import Breaker, Commit, DeadLetters, Gate, Ordering, Retry
from anabranch.core.work import TopicPartition

PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
ENTRIES = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 2]), st.sampled_from([b"a", b"a", b"b", b"c", None, b""])),
    min_size=10,
    max_size=30,
)
PLACES = st.lists(st.integers(0, 11), min_size=1, max_size=4, unique=True)
GRACES = st.sampled_from([0.0, 0.5, 5.0])
POLICIES = st.builds(
    lambda steps, concurrency, ordering, null_key_ordered, breaker, records: PlanePolicy(
        steps=tuple(
            StepPolicy(f"step{index}", concurrency, Retry(attempts=3, initial_s=0.3, max_s=1.0), breaker)
            for index in range(steps)
        ),
        ordering=ordering,
        null_key_ordered=null_key_ordered,
        commit=Commit(interval_s=2.0, count=3, min_interval_s=0.1),
        gate=Gate(records_max=records),
        dead_letters=DeadLetters("dead", ratio_max=1.0, run_max=10_000),
    ),
    steps=st.integers(1, 3),
    concurrency=st.integers(1, 4),
    ordering=st.sampled_from([Ordering.KEY, Ordering.KEY, Ordering.PARTITION, Ordering.NONE]),
    null_key_ordered=st.booleans(),
    breaker=st.sampled_from([Breaker(enabled=False), Breaker(calls_min=3, keys_min=2, probe_s=0.5, probe_s_max=2.0)]),
    records=st.sampled_from([4, 50_000]),
)


class PlaneMachine(RuleBasedStateMachine):
    """Whatever happens, in whatever order, the promises hold."""

    world: World

    @initialize(
        policy=POLICIES, logs=st.tuples(ENTRIES, ENTRIES), holes=st.tuples(st.integers(0, 2), st.integers(0, 2))
    )
    def begin(self, policy, logs, holes) -> None:
        entries = zip(PARTITIONS, logs, holes, strict=True)
        self.world = World(policy, {name: Log(name, log, hole) for name, log, hole in entries})
        for partition in PARTITIONS:
            self.assign(partition)

    def assign(self, partition) -> None:
        if partition not in self.world.holdings:
            self.world.assign(partition)
            self.world.fetch(partition, 5)

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(0, 8))
    def fetch(self, partition, count) -> None:
        self.assign(partition)
        if not self.world.holdings[partition].is_paused:
            self.world.fetch(partition, count)

    @precondition(lambda self: self.world.calls)
    @rule(places=PLACES, outcome=st.sampled_from(["done", "done", "out", "filtered"]))
    def complete_well(self, places, outcome) -> None:
        self.world.complete(chosen(list(self.world.calls), places), outcome)

    @precondition(lambda self: self.world.calls)
    @rule(outcome=st.sampled_from(["done", "out"]))
    def complete_all(self, outcome) -> None:
        self.world.complete(list(self.world.calls), outcome)

    @precondition(lambda self: self.world.calls)
    @rule(places=PLACES, outcome=st.sampled_from(["failed", "failed", "later", "poison", "cancelled"]))
    def complete_badly(self, places, outcome) -> None:
        self.world.complete(chosen(list(self.world.calls), places), outcome)

    @precondition(lambda self: self.world.deliveries)
    @rule(places=PLACES)
    def deliver(self, places) -> None:
        self.world.deliver(chosen(list(self.world.deliveries), places))

    @precondition(lambda self: self.world.commits)
    @rule(place=st.integers(0, 7), outcome=st.sampled_from(["ok", "ok", "ok", "ok", "refused", "fenced"]))
    def answer(self, place, outcome) -> None:
        self.world.answer(place % len(self.world.commits), outcome)

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.3, 1.0, 3.0, 20.0]))
    def wait(self, seconds) -> None:
        self.world.wait(seconds)

    @precondition(lambda self: self.world.holdings)
    @rule(place=st.integers(0, 1), how=st.sampled_from(["lose", "revoke", "hand over"]), grace_s=GRACES)
    def rebalance(self, place, how, grace_s) -> None:
        held = sorted(self.world.holdings)
        partition = held[place % len(held)]
        if how == "lose":
            self.world.lose(partition)
            return
        self.world.revoke(partition, grace_s)
        while how == "hand over" and partition in self.world.holdings:
            if self.world.commits:
                self.world.answer(0, "ok")
            else:
                self.world.wait(grace_s)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle_everything()


def chosen(tasks, places):
    """Take those at these places, counted round and round."""
    return list(dict.fromkeys(tasks[place % len(tasks)] for place in places))


TestPlaneMachine = PlaneMachine.TestCase
TestPlaneMachine.settings = settings(max_examples=60, stateful_step_count=50)
