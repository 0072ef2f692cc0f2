"""A bench for engines: one engine under test with a plan of given steps, and what it delivered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.core.history import NullRecorder
from anabranch.core.records import Record
from anabranch.core.work import Completion, Task
from anabranch.engine.aio import AsyncEngine
from anabranch.engine.inline import InlineEngine
from anabranch.pipeline.plan import Plan, ReadPlan, StepPlan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anabranch.core.history import Event

ENGINES = {"inline": InlineEngine, "async": AsyncEngine}
DEADLINE_S = 20.0


class ListRecorder:
    """Keeps what it is told, each call as one list."""

    enabled = True

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []

    def record(self, events: Sequence[Event]) -> None:
        self.batches.append(list(events))

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]


def step(
    handler: Callable[..., Any],
    *,
    name: str = "step",
    wants_context: bool = False,
    timeout_s: float | None = None,
    prepare: Callable[[Task], Any] | None = None,
    finish: Callable[[Task, Any], Any] | None = None,
    concurrency: int = 8,
) -> StepPlan:
    is_async = asyncio.iscoroutinefunction(handler)
    take = prepare or (lambda task: task.record.value)
    return StepPlan(name, handler, is_async, wants_context, concurrency, timeout_s, take, finish)


def task(offset: int, key: bytes = b"k", at: int = 0) -> Task:
    made = Task(Record("t", 0, offset, key, b"%d" % offset), None, 1, offset, 10)
    made.attempt = 1
    made.step = at
    return made


class Bench:
    """An engine under test and what it delivered."""

    def __init__(self, engine: str, steps: Sequence[StepPlan], **options: Any) -> None:
        plan = Plan("group", ReadPlan(("t",)), tuple(steps), PlanePolicy(tuple(StepPolicy(s.name) for s in steps)))
        self.batches: list[list[Completion]] = []
        self.failures: list[BaseException] = []
        self.react: Callable[[list[Completion]], None] = lambda _: None
        options.setdefault("recorder", NullRecorder())
        resources = options.pop("resources", None)
        made = ENGINES[engine]
        self.engine = made(plan, self._take, member="m", cluster_id="c", fail=self.failures.append, **options)
        self._came = asyncio.Event()
        self.engine.start(resources)

    def _take(self, completions: list[Completion]) -> None:
        assert completions, "an empty batch is no news"
        self.batches.append(completions)
        self.react(completions)
        self._came.set()

    @property
    def completions(self) -> list[Completion]:
        return [completion for batch in self.batches for completion in batch]

    async def until(self, count: int) -> list[Completion]:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.completions) < count:
                self._came.clear()
                await self._came.wait()
        self.engine.check_invariants()
        return self.completions

    async def end(self) -> None:
        self.engine.close()
        assert await self.engine.join(DEADLINE_S)
        self.engine.terminate()
        if self.engine.handles():
            await asyncio.wait(self.engine.handles(), timeout=DEADLINE_S)
        assert not self.failures


def in_loop(story: Callable[[], Awaitable[None]]) -> None:
    """Run a story on a loop of its own, and fail if something was raised into the loop."""
    raised: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: raised.append(context))
        await story()

    asyncio.run(watched())
    assert not raised
