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
from anabranch.pipeline.engines import load_runner, load_stream
from anabranch.pipeline.explain import describe, explain
from anabranch.pipeline.frame_steps import refuse_behind_frames, to_be_streamed, with_query, with_transform
from anabranch.pipeline.handlers import inspect_function, inspect_handler, name_of
from anabranch.pipeline.names import check_name, check_topic, step_name
from anabranch.pipeline.queries import EVERY_S, TopicSink, batch_sink, table_sink
from anabranch.pipeline.reading import compile_read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from os import PathLike
    from typing import Never, TypeGuard, Unpack

    from pyspark.sql import DataFrame, SparkSession

    from anabranch.pipeline.context import Context
    from anabranch.pipeline.draft import Step
    from anabranch.pipeline.keywords import NullKey, OrderingKey, OrderingName, ProcessKeywords, ReadKeywords, StartAt
    from anabranch.pipeline.plan import Plan
    from anabranch.pipeline.queries import OutputMode
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
        """Write what the last step gives to a topic, under the record's key; a record is settled when it is there.

        Behind a `transform` a query writes the rows: their `key` and `value` columns, or, where there is no `value`,
        all columns but `key` as a JSON object. A query that is killed may write its last rows again.
        """
        self._after_read("write")
        if self._draft.transforms:
            return self._as(with_query(self._draft, "write", TopicSink(check_topic(topic, "write"))))
        if self._draft.sink is not None:
            raise UsageError(
                f"write({topic!r}): the pipeline writes to {self._draft.sink!r} already; "
                "return Out(value, topic=…) from the handler to write to several topics"
            )
        return self._with(sink=check_topic(topic, "write"))

    def transform(self, function: Callable[[DataFrame], DataFrame], *, schema: Any = None) -> Pipeline[DataFrame]:
        """Go on with what the function makes of a streaming DataFrame of the outputs: select, SQL, join, window.

        Runs on Spark only, beside the handlers. The columns come from the last handler's return annotation, or from
        `schema`: a type, a StructType or a text such as "id STRING, cents BIGINT"; `topic`, `partition`, `offset`,
        `key`, `timestamp`, `attempts` and `handled_at` say where each row comes from, and `error` what did not fit.
        """
        return self._as(with_transform(self._draft, function, schema))

    def write_table(
        self,
        target: str | PathLike[str],
        format: str = "parquet",  # noqa: A002  # Spark's word
        *,
        partition_by: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        name: str | None = None,
        every_s: float = EVERY_S,
        schema: Any = None,
    ) -> Pipeline[T_co]:
        """Append the outputs, or what `transform` made of them, to a folder or a named table. Runs on Spark only.

        A text with a slash, or a path, is a folder. The query's `name` is that of its checkpoint: give it to keep the
        query's place when the table moves.
        """
        sink = table_sink(target, format, partition_by, options)
        return self._as(with_query(self._draft, "write_table", sink, name=name, every_s=every_s, schema=schema))

    def for_each_batch(
        self,
        function: Callable[[DataFrame], object] | Callable[[DataFrame, int], object],
        *,
        name: str | None = None,
        output_mode: OutputMode = "append",
        every_s: float = EVERY_S,
        schema: Any = None,
    ) -> Pipeline[T_co]:
        """Call `function(frame)` or `function(frame, batch_id)` on the driver, for each micro-batch. On Spark only.

        After a crash the last batch comes again, with the same rows and `batch_id`.
        """
        sink = batch_sink(function, output_mode)
        return self._as(with_query(self._draft, "for_each_batch", sink, name=name, every_s=every_s, schema=schema))

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

    def without_queries(self) -> Pipeline[Any]:
        """Return the part that members run: handlers, and the topics around them. The queries are the driver's."""
        return self._with(sink=self._draft.output_topic, transforms=(), queries=(), schema=None)

    def run(self, engine: str = "spark", **options: Any) -> int:
        """Run until done, stopped by a signal, or halted; return the exit code. Blocks."""
        plan = self.plan()
        code: int = load_runner("run", engine, self)(plan, engine=engine, **options)
        return code

    def start(self, engine: str = "spark", **options: Any) -> Run:
        """Start on a thread and event loop of its own and return at once, also under a running event loop."""
        plan = self.plan()
        run: Run = load_runner("start", engine, self)(plan, engine=engine, **options)
        return run

    def running(self, engine: str = "spark", **options: Any) -> AbstractAsyncContextManager[Run]:
        """Run while an `async with` lasts, then stop cleanly."""
        plan = self.plan()
        context: AbstractAsyncContextManager[Run] = load_runner("running", engine, self)(plan, engine=engine, **options)
        return context

    def stream(
        self,
        spark: SparkSession,
        *,
        bootstrap: str = "127.0.0.1:9092",
        kafka: Mapping[str, Any] | None = None,
        schema: Any = None,
        start: Literal["earliest", "latest"] = "earliest",
    ) -> DataFrame:
        """Return the outputs, or what `transform` made of them, as a streaming DataFrame. Starts nothing.

        It reads the topic that runs of this pipeline fill, so it may be joined with itself, limited, or read by any
        number of queries: no handler runs because of it.
        """
        draft = to_be_streamed(self._draft, schema)
        frame: DataFrame = load_stream()(draft, spark, bootstrap=bootstrap, kafka=kafka, start=start)
        return frame

    def __repr__(self) -> str:
        return f"<Pipeline {self._draft.name!r}: {describe(self._draft)}>"

    def _after_read(self, step: str) -> Any:
        if self._draft.read is None:
            raise UsageError(f"{step}: there is nothing to {step} yet; begin with .read(topic)")
        if step == "write":
            return self._draft.read
        if self._draft.sink is not None:
            raise UsageError(f"{step}: .write({self._draft.sink!r}) is the end of the flow; put .{step}(…) before it")
        refuse_behind_frames(self._draft, step)
        return self._draft.read

    def _then(self, step: Step) -> Pipeline[Any]:
        return self._with(steps=(*self._draft.steps, step))

    def _with(self, **parts: Any) -> Pipeline[Any]:
        return self._as(replace(self._draft, **parts))

    @staticmethod
    def _as(draft: Draft) -> Pipeline[Any]:
        pipeline: Pipeline[Any] = object.__new__(Pipeline)
        pipeline._draft = draft.check()
        return pipeline


def _known_decoding(steps: Sequence[Any]) -> Decoding | None:
    """Return how the value was decoded, where no map or handler has made something else of it."""
    for step in reversed(steps):
        if isinstance(step, Decoding):
            return step
        if not isinstance(step, Filter):
            return None
    return None
