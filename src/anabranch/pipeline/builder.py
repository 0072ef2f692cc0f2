"""`Pipeline`: what is read, what is done with it and where it goes, said step by step.

Immutable: each step returns a new pipeline, so a common beginning may be shared. What cannot run is refused when it is
said, with a sentence that names the fix. Nothing is opened before `run`, `start` or `running`.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from anabranch.core.errors import UsageError
from anabranch.core.policies import Breaker, Commit, DeadLetters, Gate, Retry
from anabranch.pipeline.choices import checked_count, checked_ordering, checked_seconds, is_ordered, policy
from anabranch.pipeline.compile import CONCURRENCY, compile_plan
from anabranch.pipeline.decoding import compile_decode, is_bytes, is_type
from anabranch.pipeline.draft import Decoding, Draft, Filter, Map, Process
from anabranch.pipeline.engines import load_runner, refuse_stream
from anabranch.pipeline.explain import describe, explain
from anabranch.pipeline.handlers import inspect_function, inspect_handler, name_of
from anabranch.pipeline.names import check_name, check_topic, step_name
from anabranch.pipeline.reading import compile_read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Never, TypeGuard, Unpack

    from anabranch.pipeline.context import Context
    from anabranch.pipeline.draft import Step
    from anabranch.pipeline.keywords import NullKey, OrderingKey, OrderingName, ProcessKeywords, ReadKeywords, StartAt
    from anabranch.pipeline.plan import Plan
    from anabranch.runtime.run import Run

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
S = TypeVar("S")


class Pipeline(Generic[T_co]):
    """Records of a topic on their way through handlers: parallel across keys, in order within a key, none lost."""

    __slots__ = ("_draft",)
    _draft: Draft

    def __init__(self: Pipeline[Never], name: str, *, commit: Commit | None = None, gate: Gate | None = None) -> None:
        """Begin a pipeline. Its name is also the consumer group."""
        self._draft = Draft(
            name=check_name(name, "pipeline name"),
            commit=policy(commit, Commit, "commit"),
            gate=policy(gate, Gate, "gate"),
        )

    @property
    def name(self) -> str:
        """The pipeline's name, which is also its consumer group."""
        return self._draft.name

    @overload
    def read(self, topics: str | Sequence[str], **keywords: Unpack[ReadKeywords]) -> Pipeline[bytes]: ...
    @overload
    def read(
        self,
        topics: str | Sequence[str],
        type: type[R],
        *,
        decode: Callable[[Any], R] | None = None,
        **keywords: Unpack[ReadKeywords],
    ) -> Pipeline[R]: ...
    @overload
    def read(
        self, topics: str | Sequence[str], *, decode: Callable[[Any], R], **keywords: Unpack[ReadKeywords]
    ) -> Pipeline[R]: ...
    @overload  # `Order | None` and `Any`, which type checkers cannot yet follow
    def read(self, topics: str | Sequence[str], type: object, **keywords: Unpack[ReadKeywords]) -> Pipeline[Any]: ...
    def read(
        self,
        topics: str | Sequence[str],
        type: Any = bytes,  # noqa: A002  # the word of the design
        *,
        decode: Callable[[Any], Any] | None = None,
        key: OrderingKey | None = None,
        start: StartAt = "committed",
        ordering: OrderingName | None = None,
        null_key: NullKey = "unordered",
    ) -> Pipeline[Any]:
        """Read one topic, several, or all that match a pattern (a text that begins with `^`), decoded to a type.

        `decode`, instead of a type, is given the bytes, or the whole record if its parameter is called `record` or
        annotated as Record. `key` chooses the ordering key; other than the record's own it orders within a partition
        only. `start` holds where the group has committed nothing; `committed` then means the earliest record.
        """
        if self._draft.read is not None:
            raise UsageError("read: the pipeline reads already; give all topics to one .read([…]), or a pattern '^…'")
        decoding = Decoding(*compile_decode(type, decode), is_bytes=decode is None and is_bytes(type))
        return self._with(
            read=compile_read(
                topics,
                decoding,
                key=key,
                start=start,
                ordering=checked_ordering(ordering, "read"),
                null_key_ordered=is_ordered(null_key),
            )
        )

    @overload
    def decode(self, target: type[R]) -> Pipeline[R]: ...
    @overload
    def decode(self, target: Callable[[Any], R]) -> Pipeline[R]: ...
    @overload
    def decode(self, target: object) -> Pipeline[Any]: ...
    def decode(self, target: Any) -> Pipeline[Any]:
        """Decode bytes to a type, or by a function. What cannot be decoded is poison."""
        read = self._after_read("decode")
        function = None if is_type(target) else target
        decoding = Decoding(*compile_decode(target, function), is_bytes=function is None and is_bytes(target))
        known = _known_decoding((read.decoding, *self._draft.steps))
        if known is not None and not known.is_bytes:
            raise UsageError(f"decode: the records are decoded to {known.label} already; drop one of the two")
        if not self._draft.steps:
            return self._with(read=replace(read, decoding=decoding))
        return self._then(decoding)

    @overload
    def filter(self, function: Callable[[T_co], TypeGuard[S]]) -> Pipeline[S]: ...
    @overload
    def filter(self, function: Callable[[T_co], object]) -> Pipeline[T_co]: ...
    def filter(self, function: Callable[[T_co], object]) -> Pipeline[Any]:
        """Go on only with values for which the function answers true; the others are settled at once. Runs inline."""
        self._after_read("filter")
        return self._then(Filter(inspect_function(function, "filter"), name_of(function)))

    def map(self, function: Callable[[T_co], R]) -> Pipeline[R]:
        """Go on with what the function makes of each value. Runs inline and must be quick: what waits is a process."""
        self._after_read("map")
        return self._then(Map(inspect_function(function, "map"), name_of(function)))

    @overload
    def process(
        self, handler: Callable[[T_co], Awaitable[None]], **keywords: Unpack[ProcessKeywords]
    ) -> Pipeline[None]: ...
    @overload
    def process(
        self, handler: Callable[[T_co, Context], Awaitable[None]], **keywords: Unpack[ProcessKeywords]
    ) -> Pipeline[None]: ...
    @overload
    def process(
        self, handler: Callable[[T_co], Awaitable[R | None]], **keywords: Unpack[ProcessKeywords]
    ) -> Pipeline[R]: ...
    @overload
    def process(
        self, handler: Callable[[T_co, Context], Awaitable[R | None]], **keywords: Unpack[ProcessKeywords]
    ) -> Pipeline[R]: ...
    @overload
    def process(self, handler: Callable[[T_co], None], **keywords: Unpack[ProcessKeywords]) -> Pipeline[None]: ...
    @overload
    def process(
        self, handler: Callable[[T_co, Context], None], **keywords: Unpack[ProcessKeywords]
    ) -> Pipeline[None]: ...
    @overload
    def process(self, handler: Callable[[T_co], R | None], **keywords: Unpack[ProcessKeywords]) -> Pipeline[R]: ...
    @overload
    def process(
        self, handler: Callable[[T_co, Context], R | None], **keywords: Unpack[ProcessKeywords]
    ) -> Pipeline[R]: ...
    def process(
        self,
        handler: Callable[..., Any],
        *,
        name: str | None = None,
        concurrency: int = CONCURRENCY,
        timeout_s: float | None = None,
        retry: Retry | None = None,
        breaker: Breaker | None = None,
        ordering: OrderingName | None = None,
    ) -> Pipeline[Any]:
        """Call `handler(value)` or `handler(value, ctx)`, async or plain, at most `concurrency` at once in a process.

        For one key the next call begins when the last one has really ended. A failed call is tried again as `retry`
        says, while its key waits and nobody else does. The step's name is part of `ctx.request_id`: give `name` to
        keep it when the function is renamed.
        """
        self._after_read("process")
        inspected = inspect_handler(handler)
        taken = frozenset(step.name for step in self._draft.processes)
        step = step_name(name, name_of(handler), taken)
        return self._then(
            Process(
                name=step,
                handler=inspected,
                concurrency=checked_count(concurrency, f"process {step!r}: concurrency"),
                timeout_s=checked_seconds(timeout_s, f"process {step!r}: timeout_s"),
                retry=policy(retry, Retry, "retry"),
                breaker=policy(breaker, Breaker, "breaker"),
                ordering=checked_ordering(ordering, f"process {step!r}"),
            )
        )

    def write(self, topic: str) -> Pipeline[T_co]:
        """Write what the last step gives to a topic, under the record's key; a record is settled when it is there."""
        self._after_read("write")
        if self._draft.sink is not None:
            raise UsageError(
                f"write({topic!r}): the pipeline writes to {self._draft.sink!r} already; "
                "return Out(value, topic=…) from the handler to write to several topics"
            )
        return self._with(sink=check_topic(topic, "write"))

    def dead_letters(
        self,
        topic: str,
        *,
        ratio_max: float = 0.5,
        window: int = 1000,
        run_max: int = 100,
        on_dead: Literal["go on"] = "go on",
    ) -> Pipeline[T_co]:
        """Send records that cannot be handled to a topic, byte for byte, and halt when too many are.

        Too many: more than `ratio_max` of the last `window` records, or more than `run_max` in a row.
        """
        if on_dead != "go on":
            raise UsageError(f"dead_letters(on_dead={on_dead!r}): not yet available; leave it out: the key goes on")
        if self._draft.dead_letters is not None:
            raise UsageError(
                f"dead_letters({topic!r}): they go to {self._draft.dead_letters.topic!r} already; name one topic"
            )
        name = check_topic(topic, "dead_letters")
        return self._with(dead_letters=DeadLetters(name, ratio_max=ratio_max, window=window, run_max=run_max))

    def lifespan(self, function: Callable[[], AbstractAsyncContextManager[Any]]) -> Pipeline[T_co]:
        """Open what handlers share (clients, pools) once per process; they find it as `ctx.resources`."""
        if self._draft.lifespan is not None:
            raise UsageError("lifespan: the pipeline has one already; enter both in one async context manager")
        if hasattr(function, "__aenter__") or not callable(function):
            raise UsageError(f"lifespan: given {function!r}; give the function that makes it, without calling it")
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            raise UsageError(
                f"lifespan({name_of(function)}): decorate it with contextlib.asynccontextmanager; yield what to share"
            )
        return self._with(lifespan=function)

    def explain(self) -> str:
        """Say in words what the pipeline will do."""
        return explain(self._draft)

    def plan(self) -> Plan:
        """Return the compiled pipeline, as engines run it."""
        return compile_plan(self._draft)

    def run(self, engine: str = "spark", **options: Any) -> int:
        """Run until done, stopped by a signal, or halted; return the exit code. Blocks."""
        plan = self.plan()
        code: int = load_runner("run", engine)(plan, engine=engine, **options)
        return code

    def start(self, engine: str = "spark", **options: Any) -> Run:
        """Start on a thread and event loop of its own and return at once, also under a running event loop."""
        plan = self.plan()
        run: Run = load_runner("start", engine)(plan, engine=engine, **options)
        return run

    def running(self, engine: str = "spark", **options: Any) -> AbstractAsyncContextManager[Run]:
        """Run while an `async with` lasts, then stop cleanly."""
        plan = self.plan()
        context: AbstractAsyncContextManager[Run] = load_runner("running", engine)(plan, engine=engine, **options)
        return context

    def stream(self, spark: Any) -> Any:  # noqa: ARG002  # the session, once there is a Spark engine
        """Return the outputs as a streaming DataFrame. Starts nothing."""
        raise refuse_stream()

    def __repr__(self) -> str:
        return f"<Pipeline {self._draft.name!r}: {describe(self._draft)}>"

    def _after_read(self, step: str) -> Any:
        if self._draft.read is None:
            raise UsageError(f"{step}: there is nothing to {step} yet; begin with .read(topic)")
        if self._draft.sink is not None and step != "write":
            raise UsageError(f"{step}: .write({self._draft.sink!r}) is the end of the flow; put .{step}(…) before it")
        return self._draft.read

    def _then(self, step: Step) -> Pipeline[Any]:
        return self._with(steps=(*self._draft.steps, step))

    def _with(self, **parts: Any) -> Pipeline[Any]:
        pipeline: Pipeline[Any] = object.__new__(Pipeline)
        pipeline._draft = replace(self._draft, **parts).check()
        return pipeline


def _known_decoding(steps: Sequence[Any]) -> Decoding | None:
    """Return how the value was decoded, where no map or handler has made something else of it."""
    for step in reversed(steps):
        if isinstance(step, Decoding):
            return step
        if not isinstance(step, Filter):
            return None
    return None
