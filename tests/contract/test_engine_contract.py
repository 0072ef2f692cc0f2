"""What every engine promises, written once and run on all of them. A new engine is finished when it passes."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from engine_bench import DEADLINE_S, ENGINES, Bench, ListRecorder, in_loop, step, task

from anabranch.core.errors import HandlerTimeout, Poison
from anabranch.core.history import Begun, Ended
from anabranch.core.work import FILTERED, Completion, Task

if TYPE_CHECKING:
    from collections.abc import Callable


RAISED = (ValueError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration())


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def echo(value: Any) -> Any:
    return value


def plain_echo(value: Any) -> Any:
    return value


@pytest.mark.parametrize("handler", [echo, plain_echo])
def test_every_task_that_is_submitted_gets_exactly_one_completion_with_its_value(
    engine: str, handler: Callable[[Any], Any]
) -> None:
    """1,000 calls, 1,000 completions, each with what finish made of what the handler returned."""

    async def story() -> None:
        bench = Bench(engine, [step(handler, finish=lambda _task, result: [result])])
        tasks = [task(offset) for offset in range(1000)]
        bench.engine.submit(tasks[:1])
        bench.engine.submit(tasks[1:])
        completions = await bench.until(1000)
        assert {completion.task for completion in completions} == set(tasks)
        assert all(completion.value == [completion.task.record.value] for completion in completions)
        assert all(completion.error is None and not completion.cancelled for completion in completions)
        await bench.end()

    in_loop(story)


def test_submit_never_runs_a_handler_before_it_returns(engine: str) -> None:
    """The plane submits while it does its effects: a completion in the middle of that would find it half done."""
    begun: list[bytes] = []

    async def handler(value: bytes) -> None:
        begun.append(value)

    async def story() -> None:
        bench = Bench(engine, [step(handler)])
        bench.engine.submit([task(0)])
        assert not begun
        assert not bench.completions
        await bench.until(1)
        await bench.end()

    in_loop(story)


def test_a_middle_step_passes_its_result_on_and_the_last_one_gives_outputs(engine: str) -> None:
    """Step 0's value is what the handler returned; the last step without `finish` has no outputs."""

    async def story() -> None:
        bench = Bench(engine, [step(echo, name="first"), step(plain_echo, name="last")])
        bench.engine.submit([task(7), task(8, at=1)])
        values = {completion.task.step: completion.value for completion in await bench.until(2)}
        assert values == {0: b"7", 1: ()}
        await bench.end()

    in_loop(story)


def test_a_filtered_record_is_not_called_for(engine: str) -> None:
    """`prepare` answers FILTERED: that is the completion's value, and the handler never sees the record."""
    called: list[Any] = []

    async def story() -> None:
        bench = Bench(engine, [step(called.append, prepare=lambda _: FILTERED), step(echo, prepare=lambda _: FILTERED)])
        bench.engine.submit([task(0), task(1, at=1)])
        assert [completion.value for completion in await bench.until(2)] == [FILTERED, FILTERED]
        assert not called
        await bench.end()

    in_loop(story)


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration()]
)
@pytest.mark.parametrize("where", ["prepare", "async handler", "plain handler", "finish"])
def test_whatever_user_code_raises_becomes_the_completions_error(engine: str, error: BaseException, where: str) -> None:
    """Also what would end a loop or a thread elsewhere. The next call runs as if nothing had been."""
    state = {"raise": True}

    def fail(given: Any) -> Any:
        if state["raise"]:
            raise error
        return given

    async def handler(value: bytes) -> bytes:
        return fail(value) if where == "async handler" else value

    def plain(value: bytes) -> bytes:
        return fail(value)

    async def story() -> None:
        def prepare(given: Task) -> Any:
            return fail(given.record.value) if where == "prepare" else given.record.value

        def finish(_task: Task, result: Any) -> Any:
            return fail([result]) if where == "finish" else [result]

        bench = Bench(engine, [step(plain if where == "plain handler" else handler, prepare=prepare, finish=finish)])
        bench.engine.submit([task(0)])
        (failed,) = await bench.until(1)
        raised = failed.error
        if isinstance(error, StopIteration) and where == "async handler":
            assert isinstance(raised, RuntimeError), "a coroutine cannot raise StopIteration"
        else:
            assert raised is error
        assert not failed.cancelled
        state["raise"] = False
        bench.engine.submit([task(1)])
        assert (await bench.until(2))[1].value == [b"1"]
        await bench.end()

    in_loop(story)


@pytest.mark.parametrize("waits", [True, False])
def test_a_handler_that_cancels_its_own_task_harms_no_other_call(engine: str, waits: bool) -> None:
    """A CancelledError that we did not cause is an error like any other; one that is still to come reaches nobody."""

    async def handler(value: bytes) -> bytes:
        if value == b"0":
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            if not waits:
                return value
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.sleep(0)
        return value

    async def story() -> None:
        bench = Bench(engine, [step(handler, finish=lambda _task, result: [result], concurrency=1)])
        bench.engine.submit([task(0), task(1)])
        first, second = await bench.until(2)
        assert isinstance(first.error, asyncio.CancelledError) == waits
        assert not first.cancelled
        assert second.value == [b"1"]
        bench.engine.submit([task(2)])
        assert (await bench.until(3))[2].value == [b"2"]
        await bench.end()

    in_loop(story)


def test_a_call_beyond_its_time_out_is_cancelled_and_reported_as_such(engine: str) -> None:
    """HandlerTimeout names the step and the option; the worker goes on with the next call."""

    async def handler(value: bytes) -> bytes:
        if value == b"0":
            await asyncio.Event().wait()
        return value

    async def story() -> None:
        bench = Bench(engine, [step(handler, name="charge", timeout_s=0.02, finish=lambda _task, result: [result])])
        bench.engine.submit([task(0)])
        (first,) = await bench.until(1)
        assert isinstance(first.error, HandlerTimeout)
        assert "charge" in str(first.error)
        assert "timeout_s" in str(first.error)
        assert not first.cancelled
        bench.engine.submit([task(1)])
        assert (await bench.until(2))[1].value == [b"1"]
        assert bench.engine.statistics()["charge"]["expired"] == 1
        await bench.end()

    in_loop(story)


def test_a_call_that_swallows_its_cancellation_is_reported_when_it_really_ends(engine: str) -> None:
    """Fault 16 and 14: the completion waits for the real end, and the late result is not believed."""
    cancelled, release = [], asyncio.Event()

    async def handler(value: bytes) -> bytes:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                cancelled.append(value)
        return b"late"

    async def story() -> None:
        bench = Bench(engine, [step(handler, name="s", timeout_s=0.01)])
        bench.engine.submit([task(0)])
        async with asyncio.timeout(DEADLINE_S):
            while not cancelled:
                await asyncio.sleep(0.005)
        assert not bench.completions
        assert bench.engine.statistics()["s"]["overdue"] in {0, 1}  # inline knows only at the end
        assert bench.engine.statistics()["s"]["running"] == 1
        release.set()
        (only,) = await bench.until(1)
        assert isinstance(only.error, HandlerTimeout)
        assert only.value is None
        await bench.end()

    in_loop(story)


def test_a_plain_handler_beyond_its_time_out_is_waited_for(engine: str) -> None:
    """A thread cannot be stopped: what it returned late is a HandlerTimeout, not a result."""
    waited = threading.Event()

    def handler(_value: bytes) -> bytes:
        waited.wait(0.05)
        return b"late"

    async def story() -> None:
        bench = Bench(engine, [step(handler, timeout_s=0.01)])
        bench.engine.submit([task(0)])
        (only,) = await bench.until(1)
        assert isinstance(only.error, HandlerTimeout)
        await bench.end()

    in_loop(story)


def test_an_error_that_a_timed_out_call_raised_is_the_time_outs_cause(engine: str) -> None:
    """What the handler said while it was ended helps to find out why it hung."""

    async def handler(_value: bytes) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("the connection was in use") from None

    async def story() -> None:
        bench = Bench(engine, [step(handler, timeout_s=0.01)])
        bench.engine.submit([task(0)])
        (only,) = await bench.until(1)
        assert isinstance(only.error, HandlerTimeout)
        assert isinstance(only.error.__cause__, ValueError)
        await bench.end()

    in_loop(story)


def test_cancelled_tasks_still_complete_once_each_marked_as_cancelled(engine: str) -> None:
    """The one that runs, those that wait for it, and those of another step; the rest goes on."""

    async def handler(value: bytes) -> bytes:
        if value == b"0":
            await asyncio.Event().wait()
        return value

    async def story() -> None:
        only_one = [step(handler, concurrency=1, finish=lambda _task, result: [result]), step(echo, name="other")]
        bench = Bench(engine, only_one)
        tasks = [task(offset) for offset in range(4)]
        bench.engine.submit(tasks)
        await asyncio.sleep(0.01)
        bench.engine.cancel([tasks[0], tasks[2], task(99, at=1)])
        completions = {completion.task: completion for completion in await bench.until(4)}
        for index in (0, 2):
            assert completions[tasks[index]].cancelled
            assert isinstance(completions[tasks[index]].error, asyncio.CancelledError)
        for index in (1, 3):
            assert completions[tasks[index]].value == [b"%d" % index]
        await bench.end()
        assert len(bench.completions) == 4

    in_loop(story)


def test_nothing_begins_when_may_start_says_no(engine: str) -> None:
    """A member that lost its lease starts nothing more: its tasks come back as cancelled."""
    called: list[bytes] = []
    allowed = {"now": True}

    async def handler(value: bytes) -> None:
        called.append(value)
        allowed["now"] = False

    def plain(value: bytes) -> None:
        called.append(value)

    async def story() -> None:
        bench = Bench(
            engine, [step(handler, concurrency=1), step(plain, name="plain")], may_start=lambda: allowed["now"]
        )
        bench.engine.submit([task(0), task(1)])
        await bench.until(2)
        bench.engine.submit([task(2, at=1)])
        await bench.until(3)
        assert [completion.cancelled for completion in bench.completions] == [False, True, True]
        assert called == [b"0"]
        await bench.end()

    in_loop(story)


def test_the_context_is_made_only_for_handlers_that_want_it(engine: str) -> None:
    """It knows the record, the attempt, the step and the resources of the lifespan."""
    seen: list[Any] = []

    async def handler(value: bytes, context: Any) -> None:
        seen.append((value, context.offset, context.attempt, context.step, context.resources, context.key))

    async def story() -> None:
        bench = Bench(engine, [step(handler, name="s", wants_context=True)], resources={"client": 1})
        bench.engine.submit([task(5)])
        await bench.until(1)
        assert seen == [(b"5", 5, 1, "s", {"client": 1}, b"k")]
        await bench.end()

    in_loop(story)


def test_begun_is_recorded_before_any_call_of_a_submit_and_ended_before_the_delivery(engine: str) -> None:
    """The recorded span of a call covers the real one, or the oracle could not judge overlaps."""
    recorder = ListRecorder()
    known_at_call: list[int] = []
    known_at_delivery: list[int] = []

    async def handler(value: bytes) -> None:
        known_at_call.append(sum(isinstance(event, Begun) for event in recorder.events))
        if value == b"1":
            raise Poison("no")

    async def story() -> None:
        bench = Bench(engine, [step(handler, name="s")], recorder=recorder)
        bench.react = lambda _: known_at_delivery.append(sum(isinstance(each, Ended) for each in recorder.events))
        bench.engine.submit([task(0), task(1), task(2)])
        await bench.until(3)
        assert known_at_call == [3, 3, 3]
        assert known_at_delivery[-1] == 3
        assert recorder.batches[0] == [Begun("m", 1, "t", 0, offset, b"k", "s", 1) for offset in range(3)]
        outcomes = {each.offset: each.outcome for each in recorder.events if isinstance(each, Ended)}
        assert outcomes == {0: "done", 1: "failed", 2: "done"}
        await bench.end()

    in_loop(story)


def test_a_completion_that_leads_to_a_submit_is_served(engine: str) -> None:
    """How the plane works: what one delivery frees begins the next call."""

    async def story() -> None:
        bench = Bench(engine, [step(echo, concurrency=2)])

        def react(completions: list[Completion]) -> None:
            following = [completion.task.ordinal + 1 for completion in completions]
            bench.engine.submit([task(offset) for offset in following if offset < 500])

        bench.react = react
        bench.engine.submit([task(0)])
        completions = await bench.until(500)
        assert [completion.task.ordinal for completion in completions] == list(range(500))
        await bench.end()

    in_loop(story)


def test_join_answers_whether_all_calls_have_ended(engine: str) -> None:
    """With a call that does not end it answers False in time; when it ends, True."""
    release = asyncio.Event()

    async def handler(_value: bytes) -> None:
        await release.wait()

    async def story() -> None:
        bench = Bench(engine, [step(handler)])
        bench.engine.submit([task(0)])
        bench.engine.close()
        assert not await bench.engine.join(0.01)
        release.set()
        await bench.end()
        assert len(bench.completions) == 1

    in_loop(story)


def test_terminate_waits_for_nothing_and_delivers_nothing(engine: str) -> None:
    """Forced: calls get their cancellation, and no completion is told any more."""
    ended: list[str] = []

    async def handler(_value: bytes) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def story() -> None:
        bench = Bench(engine, [step(handler)])
        bench.engine.submit([task(0), task(1)])
        await asyncio.sleep(0.01)
        bench.engine.terminate()
        await asyncio.wait(bench.engine.handles(), timeout=DEADLINE_S)
        await asyncio.sleep(0)
        assert ended
        assert not bench.completions

    in_loop(story)


def test_a_fault_outside_of_user_code_is_told_and_not_swallowed(engine: str) -> None:
    """A recorder that cannot write, a plane that fails: the runtime hears of it, or the run would hang."""

    async def story() -> None:
        bench = Bench(engine, [step(echo)])

        def react(_completions: list[Completion]) -> None:
            raise AssertionError("a rule does not hold")

        bench.react = react
        bench.engine.submit([task(0)])
        async with asyncio.timeout(DEADLINE_S):
            while not bench.failures:
                await asyncio.sleep(0.001)
        assert str(bench.failures[0]) == "a rule does not hold"
        bench.engine.terminate()

    in_loop(story)
