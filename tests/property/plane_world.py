"""A world around a plane: a log with holes, a group's stored progress, calls and deliveries under way, and a judge.

The judge knows nothing of the plane's inside. It sees what goes in and comes out, as an engine, a sink and a
coordinator would, and keeps its own books; the promises are asserted at the effect that would break them.
"""

from dataclasses import dataclass, field

from anabranch.control.carryover import Carryover, decode
from anabranch.control.effects import (
    Cancel,
    Commit,
    DeadLetter,
    Effect,
    Halt,
    Pause,
    Position,
    Released,
    Resume,
    Stopped,
    Submit,
    Write,
)
from anabranch.control.events import (
    Assigned,
    CommitEnded,
    Completed,
    Delivered,
    Event,
    Fetched,
    Lost,
    Revoked,
    Start,
    Stop,
    Tick,
)
from anabranch.control.plane import Plane
from anabranch.control.policy import PlanePolicy
from anabranch.core.errors import Poison, RetryAfter
from anabranch.core.policies import Ordering
from anabranch.core.records import Record
from anabranch.core.work import FILTERED, Completion, Delivery, Output, Task, TopicPartition

LEADER_EPOCH = 3
FAR = 2**62
OUTPUT = Output("out", None, b"v", ())


class Log:
    """One partition of a topic, with offsets that are missing before records and at its end."""

    def __init__(self, partition: TopicPartition, entries: list[tuple[int, bytes | None]], hole_at_end: int) -> None:
        """Take for each record how many offsets are missing before it, and its key."""
        self.records: list[Record] = []
        offset = 0
        for missing, key in entries:
            offset += missing
            self.records.append(Record(*partition, offset, key, b"v", leader_epoch=LEADER_EPOCH))
            offset += 1
        self.end = offset + hole_at_end

    def read(self, position: int, count: int) -> tuple[list[Record], int]:
        """Give the next records from a position, and the position after them: past the holes that follow."""
        found = [record for record in self.records if record.offset >= position]
        return found[:count], found[count].offset if len(found) > count else self.end


@dataclass(eq=False)
class Holding:
    """A partition in one epoch, as the judge sees it."""

    position: int
    carried: Carryover
    is_paused: bool = False
    is_leaving: bool = False
    """It was revoked, or everything stops: nothing of it may begin."""
    incomplete: dict[int, Record] = field(default_factory=dict)
    """What came in this epoch, was not skipped, and is not settled in it."""
    left: dict[int, int] = field(default_factory=dict)
    """How many steps a record has left."""
    begun: set[int] = field(default_factory=set)
    repeated: set[object] = field(default_factory=set)
    """Keys of which something was not skipped: from there on nothing of them is, so that no key has a gap."""


class World:
    """Everything around the plane. Each method gives it one event and judges what it wants done."""

    def __init__(self, policy: PlanePolicy, logs: dict[TopicPartition, Log]) -> None:
        self.policy = policy
        self.plane = Plane(policy)
        self.logs = logs
        self.now = 0.0
        self.holdings: dict[TopicPartition, Holding] = {}
        self.stored = {partition: Position(0, -1, "") for partition in logs}
        self.settled: dict[TopicPartition, set[int]] = {partition: set() for partition in logs}
        """What is settled for ever, in whatever epoch."""
        self.calls: dict[Task, tuple[int, Holding]] = {}
        """Calls under way, with their step and epoch."""
        self.cut: set[Task] = set()
        """Calls that were cancelled: what they say does not count any more."""
        self.deliveries: dict[Task, Holding] = {}
        self.commits: list[tuple[Commit, dict[TopicPartition, Holding]]] = []
        self.stopped: bool | None = None

    # What goes in

    def step(self, event: Event) -> None:
        for effect in self.plane.step(event, self.now):
            self.judge(effect)
        self.plane.check_invariants()
        self.check_progress()

    def assign(self, partition: TopicPartition) -> None:
        stored, end = self.stored[partition], self.logs[partition].end
        carried = decode(stored.metadata, topic_id="", position=stored.position, log_start=0, log_end=end)
        assert not carried.reason, "what was stored can be read"
        self.holdings[partition] = Holding(stored.position, carried)
        self.step(Assigned({partition: Start(stored.position, stored.metadata, "", 0, end)}))

    def fetch(self, partition: TopicPartition, count: int) -> None:
        holding = self.holdings[partition]
        records, position = self.logs[partition].read(holding.position, count)
        if not holding.is_leaving:
            holding.position = position
            for record in records:
                order = self.order_of(record)
                if holding.carried.covers(record.offset, LEADER_EPOCH) and order not in holding.repeated:
                    assert record.offset in self.settled[partition], "only what is settled is skipped"
                else:
                    holding.incomplete[record.offset] = record
                    holding.repeated.add(order)
        self.step(Fetched(partition, records, position))

    def complete(self, tasks: list[Task], outcome: str) -> None:
        completions = []
        for task in tasks:
            step, holding = self.calls.pop(task)
            completions.append(completion_of(task, outcome))
            if task not in self.cut and outcome in {"done", "out", "filtered"}:
                is_last = outcome == "filtered" or step == len(self.policy.steps) - 1
                holding.left[task.record.offset] = step + 1
                if is_last and (outcome != "out"):
                    self.settle(task, holding)
            self.cut.discard(task)
        self.step(Completed(completions))

    def deliver(self, tasks: list[Task]) -> None:
        for task in tasks:
            self.settle(task, self.deliveries.pop(task))
        self.step(Delivered([Delivery(task, None) for task in tasks]))

    def answer(self, index: int, outcome: str) -> None:
        commit, holdings = self.commits.pop(index)
        errors: dict[TopicPartition, str | None] = {}
        for partition, position in commit.positions.items():
            is_ours = self.holdings.get(partition) is holdings[partition]
            errors[partition] = None if outcome == "ok" and is_ours else "refused"
            if errors[partition] is None:
                self.stored[partition] = position
        if outcome == "fenced":
            self.holdings.clear()
        self.step(CommitEnded(errors, outcome == "fenced", commit.number))

    def revoke(self, partition: TopicPartition, grace_s: float) -> None:
        self.holdings[partition].is_leaving = True
        self.step(Revoked([partition], self.now + grace_s))

    def lose(self, partition: TopicPartition) -> None:
        del self.holdings[partition]
        self.step(Lost([partition]))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        for _ in range(1000):
            deadline = self.plane.next_deadline()
            if deadline is None or deadline > end:
                break
            assert deadline > self.now, "what is due was done in the last step"
            self.now = deadline
            self.step(Tick())
        else:
            raise AssertionError("it wants to be woken up again and again")
        self.now = end
        self.step(Tick())

    def stop(self, seconds: float) -> None:
        for holding in self.holdings.values():
            holding.is_leaving = True
        self.step(Stop(self.now + seconds))

    def settle(self, task: Task, holding: Holding) -> None:
        record = task.record
        holding.incomplete.pop(record.offset, None)
        self.settled[TopicPartition(record.topic, record.partition)].add(record.offset)

    # What comes out

    def judge(self, effect: Effect) -> None:
        match effect:
            case Submit(tasks):
                for task in tasks:
                    self.begin(task)
                self.check_concurrency()
            case Cancel(tasks):
                assert all(task in self.calls for task in tasks), "only calls that run are cancelled"
                self.cut.update(tasks)
            case Write(tasks):
                for task in tasks:
                    self.hand_over(task)
            case DeadLetter(task):
                self.hand_over(task)
            case Pause(partitions) | Resume(partitions):
                for partition in partitions:
                    self.holdings[partition].is_paused = isinstance(effect, Pause)
            case Commit(positions):
                for partition, position in positions.items():
                    self.judge_commit(partition, position)
                self.commits.append((effect, {partition: self.holdings[partition] for partition in positions}))
            case Released(partitions):
                for partition in partitions:
                    self.holdings.pop(partition, None)
            case Halt(reason):
                raise AssertionError(f"nothing here may halt it: {reason}")
            case Stopped(complete):
                assert self.stopped is None, "it stops once"
                self.stopped = complete

    def order_of(self, record: Record) -> object:
        """Say what must not run twice at once: the key, or the record itself where there is no order."""
        if self.policy.ordering is Ordering.PARTITION:
            return (record.topic, record.partition)
        if self.policy.ordering is Ordering.NONE or (record.key is None and not self.policy.null_key_ordered):
            return (record.topic, record.partition, record.offset)
        return (record.topic, record.partition, record.key)

    def begin(self, task: Task) -> None:
        """Judge a call that is to begin: C2, C4."""
        record, step = task.record, task.step
        holding = self.holdings.get(TopicPartition(record.topic, record.partition))
        assert holding is not None, "only what is ours begins"
        assert holding.incomplete.get(record.offset) is record, "only what is incomplete in this epoch begins"
        assert not holding.is_leaving or record.offset in holding.begun, "what leaves begins nothing new"
        assert holding.left.get(record.offset, 0) == step, "steps are taken one after the other"
        assert task.attempt >= 1, "attempts count from 1"
        mine = self.order_of(record)
        for other, (other_step, other_holding) in self.calls.items():
            if self.order_of(other.record) == mine:
                assert other_holding is holding, "never two at once, not even across epochs"
                assert other_step != step, "never two at once in a step"
        for earlier in holding.incomplete.values():
            if earlier.offset < record.offset and self.order_of(earlier) == mine:
                assert holding.left.get(earlier.offset, 0) > step, "an earlier record of the key has left this step"
        waiting = {other.record.offset for other, held in self.deliveries.items() if held is holding}
        is_last = step == len(self.policy.steps) - 1
        behind = [one for one in holding.incomplete.values() if one.offset in waiting and one.offset < record.offset]
        assert not is_last or all(self.order_of(one) != mine for one in behind), "its outputs are acknowledged first"
        holding.begun.add(record.offset)
        self.calls[task] = (step, holding)

    def hand_over(self, task: Task) -> None:
        holding = self.holdings[TopicPartition(task.record.topic, task.record.partition)]
        assert task not in self.deliveries, "outputs and letters are handed over once"
        assert task not in self.calls, "only when the call has ended"
        self.deliveries[task] = holding

    def check_concurrency(self) -> None:
        for index, step in enumerate(self.policy.steps):
            running = sum(1 for at, _ in self.calls.values() if at == index)
            assert running <= step.concurrency, "no more calls run than may"

    def judge_commit(self, partition: TopicPartition, position: Position) -> None:
        """C1: everything below is settled, and what is carried is settled too."""
        settled, records = self.settled[partition], self.logs[partition].records
        unsettled = [one.offset for one in records if one.offset < position.position and one.offset not in settled]
        assert not unsettled, "nothing is committed past an unsettled record"
        carried = decode(position.metadata, topic_id="", position=position.position, log_start=0, log_end=FAR)
        assert not carried.reason, "what is written can be read"
        covered = [one.offset for one in records if carried.covers(one.offset, LEADER_EPOCH)]
        assert settled.issuperset(covered), "only what is settled is carried"

    def check_progress(self) -> None:
        """Compare what the plane says with our books."""
        for one in self.plane.statistics().partitions:
            holding = self.holdings.get(TopicPartition(one.topic, one.partition))
            if holding is not None and one.phase == "owned":
                lowest = min(holding.incomplete, default=holding.position)
                assert one.committable == lowest, "committable is the lowest incomplete offset, or the position"
                assert one.incomplete == len(holding.incomplete), "what is incomplete is counted"
                assert one.position == holding.position, "the position is the consumer's"

    # The end

    def settle_everything(self) -> None:
        """Let everyone behave until nothing is left to do, then stop."""
        for partition in self.logs:
            if partition in self.holdings and self.holdings[partition].is_leaving:
                self.finish_all()
            if partition not in self.holdings:
                self.assign(partition)
        for _ in range(400):
            self.finish_all()
            for partition, holding in self.holdings.items():
                if not holding.is_paused and holding.position < self.logs[partition].end:
                    self.fetch(partition, 5)
            if all(
                held.position == self.logs[name].end and not held.incomplete for name, held in self.holdings.items()
            ):
                break
        for partition, log in self.logs.items():
            assert self.settled[partition] == {record.offset for record in log.records}, "nothing is lost"
        self.stop(10.0)
        self.finish_all()
        assert self.stopped is True, "it stops when all has ended"
        assert {name: one.position for name, one in self.stored.items()} == {
            name: log.end for name, log in self.logs.items()
        }, "all progress is stored"
        assert not self.calls

    def finish_all(self) -> None:
        """End every call and delivery well, answer every commit, and let time pass."""
        for _ in range(200):
            if self.calls:
                self.complete(list(self.calls), "done")
            elif self.deliveries:
                self.deliver(list(self.deliveries))
            elif self.commits:
                self.answer(0, "ok")
            else:
                break
        self.wait(40.0)
        while self.commits:
            self.answer(0, "ok")


def completion_of(task: Task, outcome: str) -> Completion:
    match outcome:
        case "done":
            return Completion(task, (), None)
        case "out":
            return Completion(task, (OUTPUT,), None)
        case "filtered":
            return Completion(task, FILTERED, None)
        case "cancelled":
            return Completion(task, None, None, cancelled=True)
        case "later":
            return Completion(task, None, RetryAfter(0.5))
        case "poison":
            return Completion(task, None, Poison("bad"))
        case _:
            return Completion(task, None, OSError("down"))
