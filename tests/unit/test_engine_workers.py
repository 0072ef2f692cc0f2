"""How the async engine's workers share the work: who is woken, who gives way, how threads grow, what a history says."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.core.history import Begun, Ended, NullRecorder
from anabranch.core.policies import Ordering
from anabranch.core.records import Record
from anabranch.core.work import Completion, Task
from anabranch.engine.aio import AsyncEngine
from anabranch.engine.coroutine_step import SLICE_S, CoroutineStep
from anabranch.engine.recording import NULL_KEY, PARTITION_KEY, history_keys
from anabranch.engine.thread_step import THREADS_MAX, ThreadStep
from anabranch.pipeline.plan import Plan, ReadPlan, StepPlan
from anabranch.testing.history import MemoryHistory

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE_S = 20.0


def plan(handler: Callable[..., Any], concurrency: int, timeout_s: float | None = None, **policy: Any) -> Plan:
    is_async = asyncio.iscoroutinefunction(handler)
    step = StepPlan("s", handler, is_async, False, concurrency, timeout_s, lambda task: task.record.value, None)
    read = ReadPlan(("t",), ordering_key=policy.pop("ordering_key", None))
    return Plan("group", read, (step,), PlanePolicy((StepPolicy("s", concurrency),), **policy))


def tasks(count: int) -> list[Task]:
    return [Task(Record("t", 0, offset, b"k", b"%d" % offset), None, 1, offset, 10) for offset in range(count)]


class Bench:
    """An engine, its only step, and how many completions came in which batches."""

    def __init__(self, handler: Callable[..., Any], concurrency: int, timeout_s: float | None = None) -> None:
        self.batches: list[int] = []
        made = plan(handler, concurrency, timeout_s)
        self.engine = AsyncEngine(made, self._take, recorder=NullRecorder(), member="m")
        self.engine.start(None)
        self.step: Any = self.engine._steps[0]
        self._came = asyncio.Event()

    def _take(self, completions: list[Completion]) -> None:
        self.batches.append(len(completions))
        self._came.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while sum(self.batches) < count:
                self._came.clear()
                await self._came.wait()
        self.engine.check_invariants()

    async def end(self) -> None:
        self.engine.terminate()
        if self.engine.handles():
            await asyncio.wait(self.engine.handles(), timeout=DEADLINE_S)


def test_handlers_that_never_wait_are_run_by_one_worker_and_delivered_together() -> None:
    """200 calls: one worker runs them all in one turn of the loop, one more was woken in vain, one batch comes."""

    async def handle(_value: bytes) -> None: ...

    async def story() -> None:
        bench = Bench(handle, 256)
        assert isinstance(bench.step, CoroutineStep)
        bench.engine.submit(tasks(200))
        await bench.until(200)
        assert bench.batches == [200]
        assert len(bench.step._workers) == 2
        await bench.end()

    asyncio.run(story())


def test_handlers_that_wait_get_a_worker_each_up_to_the_concurrency() -> None:
    """50 calls that wait, 32 at once: no more than that run at any time, and all are run."""
    running, most = 0, 0
    gate = asyncio.Event()

    async def handle(_value: bytes) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    async def story() -> None:
        bench = Bench(handle, 32)
        bench.engine.submit(tasks(50))
        async with asyncio.timeout(DEADLINE_S):
            while running < 32:
                await asyncio.sleep(0)
        bench.engine.check_invariants()
        assert len(bench.step._workers) == 32
        assert bench.engine.statistics()["s"]["running"] == 50
        gate.set()
        await bench.until(50)
        assert most == 32
        await bench.end()

    asyncio.run(story())


def test_calls_that_burn_time_give_way_to_the_loop() -> None:
    """Calls that never wait but take long: completions are told meanwhile, not after the last of them."""
    told_after: list[int] = []
    begun = 0

    async def handle(_value: bytes) -> None:
        nonlocal begun
        begun += 1
        end = time.perf_counter() + SLICE_S / 2
        while time.perf_counter() < end:
            pass

    async def story() -> None:
        bench = Bench(handle, 64)
        take = bench.engine._outbox._deliver

        def deliver(completions: list[Completion]) -> None:
            told_after.append(begun)
            take(completions)

        bench.engine._outbox._deliver = deliver
        bench.engine.submit(tasks(12))
        await bench.until(12)
        assert told_after[0] < 12
        await bench.end()

    asyncio.run(story())


def test_one_timer_serves_all_time_outs_of_a_step() -> None:
    """100 calls with a time-out, all of them quick: one look is armed, and it finds nothing."""

    async def handle(_value: bytes) -> None: ...

    async def story() -> None:
        bench = Bench(handle, 8, timeout_s=30)
        bench.engine.submit(tasks(100))
        await bench.until(100)
        assert bench.step._look is not None
        bench.step._look_at_deadlines()
        assert bench.step._look is None, "nothing runs, so nothing is to be looked at"
        assert bench.engine.statistics()["s"]["expired"] == 0
        await bench.end()

    asyncio.run(story())


def test_threads_grow_with_the_calls_and_no_further_than_the_concurrency() -> None:
    """Ten calls at a concurrency of four: four threads, four at once."""
    together = threading.Barrier(4)

    def handle(value: bytes) -> None:
        if int(value) < 8:
            together.wait(DEADLINE_S)

    async def story() -> None:
        bench = Bench(handle, 4)
        assert isinstance(bench.step, ThreadStep)
        bench.engine.submit(tasks(1)[:0])
        assert bench.step._threads == 0
        bench.engine.submit(tasks(10))
        await bench.until(10)
        assert bench.step._threads == 4
        await bench.end()

    asyncio.run(story())


def test_the_number_of_threads_has_a_bound_of_its_own() -> None:
    """Whatever concurrency a step asks for."""

    async def story() -> None:
        bench = Bench(lambda value: value, 100_000)
        assert bench.step._threads_max == THREADS_MAX
        await bench.end()

    asyncio.run(story())


def test_a_plain_call_that_was_cancelled_before_it_began_is_not_made() -> None:
    """One thread, busy: what waits behind it can still be taken back."""
    begun, release, called = threading.Event(), threading.Event(), []

    def handle(value: bytes) -> None:
        called.append(value)
        begun.set()
        release.wait(DEADLINE_S)

    async def story() -> None:
        bench = Bench(handle, 1)
        given = tasks(2)
        bench.engine.submit(given)
        async with asyncio.timeout(DEADLINE_S):
            while not begun.is_set():
                await asyncio.sleep(0.001)
        bench.engine.cancel(given)
        assert bench.engine.statistics()["s"]["overdue"] == 1
        release.set()
        await bench.until(2)
        assert called == [b"0"]
        await bench.end()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("policy", "record_key", "expected"),
    [
        ({}, b"a", b"a"),
        ({}, b"", b""),
        ({}, None, None),
        ({"null_key_ordered": True}, None, NULL_KEY),
        ({"ordering": Ordering.PARTITION}, b"a", PARTITION_KEY),
        ({"ordering": Ordering.PARTITION}, None, PARTITION_KEY),
        ({"ordering": Ordering.NONE}, b"a", None),
        ({"ordering_key": lambda record: record.value}, b"a", b"v"),
        ({"ordering_key": lambda record: None}, b"a", None),
    ],
)
def test_a_history_names_the_ordering_key(
    policy: dict[str, Any], record_key: bytes | None, expected: bytes | None
) -> None:
    """None where records have no order, so that the oracle does not look for one."""

    async def handle(_value: bytes) -> None: ...

    keys = history_keys(plan(handle, 1, **policy))
    assert keys(Record("t", 0, 0, record_key, b"v")) == expected


def test_what_may_not_start_comes_back_and_is_not_in_the_history() -> None:
    """A member without a lease: its tasks come back as cancelled, later, and a history knows of no call; when it may,
    they run. Else the oracle would see calls of a member that Spark has replaced, and there were none.
    """
    history = MemoryHistory("m")
    allowed = False
    came: list[Completion] = []

    async def handler(value: bytes) -> bytes:
        return value

    async def story() -> None:
        nonlocal allowed
        engine = AsyncEngine(plan(handler, 4), came.extend, recorder=history, member="m", may_start=lambda: allowed)
        engine.start(None)
        engine.submit(tasks(3))
        assert came == [], "never from inside of submit"
        assert await engine.join(DEADLINE_S)
        assert [completion.cancelled for completion in came] == [True] * 3
        assert list(history) == []
        allowed = True
        engine.submit(tasks(1))
        assert await engine.join(DEADLINE_S)
        engine.check_invariants()
        engine.terminate()
        allowed = False

    asyncio.run(story())
    assert [type(event) for batch in history for event in batch.events] == [Begun, Ended]
