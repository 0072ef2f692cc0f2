"""What the plane's users rely on beside its transcripts: reports, deadlines, sizes, statistics, bounds."""

import gc
import weakref
from dataclasses import FrozenInstanceError

import pytest

from anabranch.control import effects, events
from anabranch.control.plane import Plane
from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.control.sizes import HEADER_BYTES, TASK_BYTES
from anabranch.core.errors import InternalError, Poison
from anabranch.core.policies import Breaker, DeadLetters, Gate, Ordering, Retry
from anabranch.core.records import Record
from anabranch.core.work import FILTERED, Completion, Delivery, Output, Task, TopicPartition

HOME = TopicPartition("orders", 0)
NO_BREAKER = Breaker(enabled=False)


def record(offset: int, key: bytes | None = b"k", value: bytes | None = b"value") -> Record:
    return Record(*HOME, offset, key, value)


def started(policy: PlanePolicy, reports_settled: bool = False) -> Plane:
    plane = Plane(policy, reports_settled=reports_settled)
    plane.step(events.Assigned({HOME: events.Start(0)}), 0.0)
    return plane


def fetch(plane: Plane, records: list[Record], now: float = 0.0) -> list[Task]:
    return submitted(plane.step(events.Fetched(HOME, records, records[-1].offset + 1), now))


def submitted(found: list[effects.Effect]) -> list[Task]:
    return [task for effect in found if isinstance(effect, effects.Submit) for task in effect.tasks]


def done(task: Task) -> Completion:
    return Completion(task, (), None)


def test_settled_records_are_reported_before_their_commit_when_asked_for() -> None:
    """A history needs each record, with how it was settled; nobody else pays for it."""
    policy = PlanePolicy((StepPolicy("charge"),), dead_letters=DeadLetters("dead"))
    plane = started(policy, reports_settled=True)
    tasks = fetch(plane, [record(0, b"a"), record(1, b"b"), record(2, b"c")])
    ended = [done(tasks[0]), Completion(tasks[1], FILTERED, None), Completion(tasks[2], None, Poison("bad"))]
    found = plane.step(events.Completed(ended), 6.0)
    assert found[:2] == [effects.Settled([tasks[0]], "handled"), effects.Settled([tasks[1]], "filtered")]
    assert isinstance(found[2], effects.DeadLetter)
    assert isinstance(found[3], effects.Commit)
    found = plane.step(events.Delivered([Delivery(tasks[2], None)]), 6.0)
    assert found == [effects.Settled([tasks[2]], "dead")]
    silent = started(policy)
    tasks = fetch(silent, [record(0)])
    assert silent.step(events.Completed([done(tasks[0])]), 0.0) == []


def test_nothing_is_due_while_nothing_can_happen_by_itself() -> None:
    """An idle plane asks for no timer: no CPU while everything waits for the outside."""
    plane = started(PlanePolicy((StepPolicy("charge"),)))
    assert plane.next_deadline() is None
    tasks = fetch(plane, [record(0)])
    assert plane.next_deadline() is None
    plane.step(events.Completed([done(tasks[0])]), 1.0)
    assert plane.next_deadline() == 5.0
    (commit,) = plane.step(events.Tick(), 5.0)
    assert isinstance(commit, effects.Commit)
    assert plane.next_deadline() is None
    plane.step(events.CommitEnded({HOME: None}, number=commit.number), 5.0)
    assert plane.next_deadline() is None


def test_an_answer_without_a_number_belongs_to_the_oldest_commit_of_its_partitions() -> None:
    """A source that does not carry the number through is understood."""
    plane = started(PlanePolicy((StepPolicy("charge"),)))
    (task,) = fetch(plane, [record(0)])
    plane.step(events.Completed([done(task)]), 5.0)
    plane.step(events.CommitEnded({HOME: None}), 5.0)
    assert plane.statistics().partitions[0].committed == 1
    plane.step(events.CommitEnded({HOME: None}), 5.0)
    assert plane.statistics().commits == 1


def test_a_record_counts_with_all_its_bytes() -> None:
    """Key, value, headers and a constant for the objects around them; nulls count nothing."""
    plane = started(PlanePolicy((StepPolicy("charge"),)))
    full = Record(*HOME, 0, b"key", b"value", (("name", b"12"), ("empty", None)))
    tasks = fetch(plane, [full, record(1, None, None)])
    assert tasks[0].bytes == TASK_BYTES + 3 + 5 + 2 * HEADER_BYTES + 4 + 2 + 5
    assert tasks[1].bytes == TASK_BYTES
    assert plane.statistics().bytes == tasks[0].bytes + tasks[1].bytes
    plane.step(events.Completed([done(task) for task in tasks]), 0.0)
    assert plane.statistics().bytes == 0


def test_given_ordering_keys_override_the_records_own() -> None:
    """Records of different keys with one ordering key run one after the other."""
    plane = started(PlanePolicy((StepPolicy("charge"),)))
    batch = events.Fetched(HOME, [record(0, b"a"), record(1, b"b"), record(2, b"c")], 3, [b"x", b"x", None])
    tasks = submitted(plane.step(batch, 0.0))
    assert [task.record.offset for task in tasks] == [0, 2]


def test_equal_keys_share_a_lane_whatever_object_they_are() -> None:
    """Fault 10: keys are compared by their bytes."""
    plane = started(PlanePolicy((StepPolicy("charge"),)))
    keys = [bytes(bytearray(b"alice")) for _ in range(3)]
    assert len({id(key) for key in keys}) == 3
    assert len(fetch(plane, [record(index, key) for index, key in enumerate(keys)])) == 1


def test_a_task_begins_with_its_record_and_goes_on_with_what_the_step_returned() -> None:
    """`Task.value` is a step's input; a retry finds it unchanged; attempts count anew in each step."""
    plane = started(PlanePolicy((StepPolicy("one"), StepPolicy("two")), ordering=Ordering.PARTITION))
    (task,) = fetch(plane, [record(0)], now=1.0)
    assert task.value is task.record
    assert (task.step, task.attempt, task.first_begun_at) == (0, 1, 1.0)
    assert submitted(plane.step(events.Completed([Completion(task, "input of two", None)]), 2.0)) == [task]
    assert (task.step, task.attempt, task.begun_at, task.first_begun_at) == (1, 1, 2.0, 1.0)
    plane.step(events.Completed([Completion(task, None, OSError())]), 3.0)
    assert submitted(plane.step(events.Tick(), 4.0)) == [task]
    assert (task.value, task.attempt, task.begun_at) == ("input of two", 2, 4.0)


def test_outputs_stay_with_the_task_until_they_are_acknowledged() -> None:
    """So that a delivery can be repeated without the handler."""
    plane = started(PlanePolicy((StepPolicy("charge"),)))
    (task,) = fetch(plane, [record(0)])
    outputs = (Output("out", None, b"v", ()),)
    assert plane.step(events.Completed([Completion(task, outputs, None)]), 0.0) == [effects.Write([task])]
    assert task.outputs is outputs


def test_a_time_that_goes_back_is_taken_as_standing_still() -> None:
    """Fault 15: nothing is due twice, and nothing waits longer than it should, when a clock jumps back and forth."""
    plane = started(PlanePolicy((StepPolicy("charge", retry=Retry(initial_s=1.0, max_s=1.0, jitter=0.0)),)))
    (task,) = fetch(plane, [record(0)], now=100.0)
    plane.step(events.Completed([Completion(task, None, OSError())]), 50.0)
    assert plane.next_deadline() == 101.0
    assert submitted(plane.step(events.Tick(), 101.0)) == [task]


def test_what_is_settled_lost_or_revoked_is_not_kept_in_memory() -> None:
    """C5: no table holds on to tasks, lanes or values that are done with, also when nothing runs any more."""
    plane = started(PlanePolicy((StepPolicy("charge", 1, breaker=NO_BREAKER),)))

    class Value:
        pass

    def hold(tasks: list[Task]) -> list[weakref.ref[Value]]:
        values = [Value() for _ in tasks]
        for task, value in zip(tasks, values, strict=True):
            task.value = value
        return [weakref.ref(value) for value in values]

    (task,) = fetch(plane, [record(0, b"a")])
    watched = hold([task])
    (following,) = fetch(plane, [record(1, b"b"), record(2, b"c")]) or submitted(
        plane.step(events.Completed([done(task)]), 0.0)
    )
    watched += hold([following])
    plane.step(events.Lost([HOME]), 0.0)
    plane.step(events.Completed([done(following)]), 0.0)
    del task, following
    gc.collect()
    assert [one() for one in watched] == [None, None]


def test_an_error_is_kept_as_text_only() -> None:
    """A waiting record must not hold the frames of its last failure: 25,000 of them would be memory without bound."""
    plane = started(PlanePolicy((StepPolicy("charge"),)))
    (task,) = fetch(plane, [record(0)])

    class Down(Exception):
        pass

    error = Down("no answer")
    watched = weakref.ref(error)
    plane.step(events.Completed([Completion(task, None, error)]), 0.0)
    del error
    gc.collect()
    assert watched() is None
    assert "Down: no answer" in plane.why()[0]


def test_an_exception_that_cannot_be_shown_is_named() -> None:
    """A handler's own exception class may fail in its `__str__`: that is not a reason to fall over."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("even this fails")

    plane = started(PlanePolicy((StepPolicy("charge"),)))
    (task,) = fetch(plane, [record(0)])
    plane.step(events.Completed([Completion(task, None, Broken())]), 0.0)
    assert "Broken" in plane.why()[0]


def test_going_back_within_an_epoch_is_refused_as_a_fault_of_ours() -> None:
    """Fault 4: offsets that were reset under a live tracker need a new epoch, or records would be lost silently."""
    plane = started(PlanePolicy((StepPolicy("charge"),)))
    fetch(plane, [record(5)])
    with pytest.raises(InternalError, match="new epoch"):
        fetch(plane, [record(5)])


def test_true_lag_counts_what_is_not_settled() -> None:
    """high_watermark - committable, not - position: what is being worked on is not done."""
    plane = started(PlanePolicy((StepPolicy("charge"),)))
    assert plane.statistics().true_lag is None
    fetch(plane, [record(offset) for offset in range(10)])
    plane.step(events.HighWatermarks({HOME: 25, TopicPartition("other", 1): 3}), 1.0)
    assert plane.statistics().true_lag == 25


def test_statistics_are_plain_and_frozen() -> None:
    """They may be read on another thread and turned into JSON; nothing of the plane can be changed through them."""
    plane = started(PlanePolicy((StepPolicy("charge"),)))
    found = plane.statistics()
    with pytest.raises(FrozenInstanceError):
        found.handled = 7  # type: ignore[misc]  # that is the test
    assert (found.partitions[0].topic, found.partitions[0].phase, found.partitions[0].gate) == (
        "orders",
        "owned",
        "open",
    )
    assert (found.steps[0].name, found.steps[0].concurrency, found.steps[0].breaker) == ("charge", 256, "closed")


def test_half_of_the_keys_failing_for_ever_leave_memory_and_queues_flat() -> None:
    """Fault 11: with the breaker off and no end of attempts the others go on; the tables do not grow with time."""
    step = StepPolicy("charge", 64, Retry(attempts=None, initial_s=0.1, max_s=0.1), NO_BREAKER)
    plane = started(PlanePolicy((step,), gate=Gate(records_max=2000)))
    offset, now, is_open = 0, 0.0, True
    for _ in range(600):
        if is_open:
            batch = [record(one, f"key{one % 200}".encode()) for one in range(offset, offset + 200)]
            offset += 200
            found = plane.step(events.Fetched(HOME, batch, offset), now)
        else:
            now += 0.02
            found = plane.step(events.Tick(), now)
        while found:
            for effect in found:
                if isinstance(effect, (effects.Pause, effects.Resume)):
                    is_open = isinstance(effect, effects.Resume)
            ended = [
                Completion(task, (), OSError() if int((task.record.key or b"")[3:]) % 2 else None)
                for task in submitted(found)
            ]
            found = plane.step(events.Completed(ended), now) if ended else []
    statistics = plane.statistics()
    assert statistics.handled == offset // 2, "the other half was handled"
    assert statistics.held == statistics.waiting == offset // 2, "what waits fills the bound"
    assert statistics.held <= 2000 + 200
    assert len(plane._scheduler.waiting) == 100
    assert len(plane._scheduler.steps[0].ready) <= 100
    assert any("records wait for retries and fill the bound" in sentence for sentence in plane.why())
    plane.check_invariants()
