"""From a draft to a `Plan`: the user's functions become one closure before each handler and one after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.core.errors import UsageError
from anabranch.core.policies import Breaker, Retry
from anabranch.core.work import FILTERED
from anabranch.pipeline.decoding import read_bytes, undecodable
from anabranch.pipeline.draft import Decoding, Filter, Map, Process
from anabranch.pipeline.handlers import Handler
from anabranch.pipeline.ordering_key import compile_ordering_key
from anabranch.pipeline.output_type import output_type
from anabranch.pipeline.plan import Plan, ReadPlan, StepPlan
from anabranch.pipeline.results import compile_finish, compile_pass_on

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.core.records import Record
    from anabranch.core.work import Task
    from anabranch.pipeline.draft import Draft, Read, Step

CONCURRENCY = 256
"""Calls running at once in one process, unless a step says otherwise."""

Inline = Decoding | Filter | Map


async def _identity(value: Any) -> Any:
    return value


IDENTITY = Process(
    name="identity",
    handler=Handler(_identity, True, False, "identity(value)"),
    concurrency=CONCURRENCY,
    timeout_s=None,
    retry=Retry(),
    breaker=Breaker(),
    ordering=None,
)
"""Stands in a pipeline that writes what it reads. Async, so that no engine gives it a thread."""


def compile_plan(draft: Draft) -> Plan:
    """Return what engines and the runtime run; raise UsageError when something is missing."""
    missing = draft.missing()
    read = draft.read
    if missing is not None or read is None:
        raise UsageError(missing or "")
    stages, rest = _stages(draft.steps)
    return Plan(
        name=draft.name,
        read=ReadPlan(
            topics=read.topics,
            pattern=read.pattern,
            start=read.start,
            ordering_key=None if read.key is None else compile_ordering_key(read.key)[0],
        ),
        steps=tuple(_step_plan(draft, read, stages, rest, index) for index in range(len(stages))),
        policy=_policy(draft, read, [process for _, process in stages]),
        sink_topic=draft.output_topic,
        lifespan=draft.lifespan,
        spark_only=tuple(f"{query.step}({query.name})" for query in draft.queries),
        queries=draft.queries,
        output_type=output_type(draft) if draft.queries else None,
    )


def _stages(steps: Sequence[Step]) -> tuple[list[tuple[list[Inline], Process]], list[Inline]]:
    """Return each process step with what stands before it, and what stands after the last."""
    stages: list[tuple[list[Inline], Process]] = []
    inline: list[Inline] = []
    for step in steps:
        if isinstance(step, Process):
            stages.append((inline, step))
            inline = []
        else:
            inline.append(step)
    return (stages, inline) if stages else ([(inline, IDENTITY)], [])


def _policy(draft: Draft, read: Read, processes: Sequence[Process]) -> PlanePolicy:
    return PlanePolicy(
        steps=tuple(StepPolicy(each.name, each.concurrency, each.retry, each.breaker) for each in processes),
        ordering=draft.ordering,
        null_key_ordered=read.null_key_ordered,
        commit=draft.commit,
        gate=draft.gate,
        dead_letters=draft.dead_letters,
    )


def _step_plan(
    draft: Draft, read: Read, stages: Sequence[tuple[list[Inline], Process]], rest: list[Inline], index: int
) -> StepPlan:
    inline, process = stages[index]
    chain = compile_chain(inline)
    is_last = index == len(stages) - 1
    return StepPlan(
        name=process.name,
        handler=process.handler.function,
        is_async=process.handler.is_async,
        wants_context=process.handler.wants_context,
        concurrency=process.concurrency,
        timeout_s=process.timeout_s,
        prepare=_prepare_first(read, chain) if index == 0 else _prepare_later(chain),
        finish=compile_finish(process.name, draft.output_topic, compile_chain(rest))
        if is_last
        else compile_pass_on(process.name),
    )


def _prepare_first(read: Read, chain: Callable[[Task, Any], Any] | None) -> Callable[[Task], Any]:
    decode = read.decoding.decode
    if read.key is not None:
        decode = _key_first(compile_ordering_key(read.key)[1], decode)
    if chain is not None:
        return lambda task: chain(task, decode(task.record))
    return _prepare_bytes if decode is read_bytes else lambda task: decode(task.record)


def _prepare_bytes(task: Task) -> Any:
    """Return the record's value, as `read_bytes` does, one call shorter: this is the hot path of plain pipelines."""
    value = task.record.value
    return value if value is not None else read_bytes(task.record)


def _key_first(check: Callable[[Record], object], decode: Callable[[Record], Any]) -> Callable[[Record], Any]:
    """Let a record whose ordering key cannot be told die here, in its step, and not in the consumer."""

    def checked(record: Record) -> Any:
        check(record)
        return decode(record)

    return checked


def _prepare_later(chain: Callable[[Task, Any], Any] | None) -> Callable[[Task], Any]:
    """Return the `prepare` of a later step. None from the step before ended the record; it is not called with it."""
    if chain is None:
        return lambda task: FILTERED if task.value is None else task.value
    return lambda task: FILTERED if task.value is None else chain(task, task.value)


def compile_chain(inline: Sequence[Inline]) -> Callable[[Task, Any], Any] | None:
    """Return maps, filters and decodings as one function; None when there are none."""
    if not inline:
        return None
    if len(inline) == 1:
        return _link(inline[0])
    links = tuple(_link(each) for each in inline)

    def chain(task: Task, value: Any) -> Any:
        for link in links:
            value = link(task, value)
            if value is FILTERED:
                break
        return value

    return chain


def _link(inline: Inline) -> Callable[[Task, Any], Any]:
    if isinstance(inline, Decoding):
        return _decode_value(inline.decode)
    function = inline.function
    if isinstance(inline, Filter):
        return lambda _, value: value if function(value) else FILTERED
    return lambda _, value: function(value)


def _decode_value(decode: Callable[[Record], Any]) -> Callable[[Task, Any], Any]:
    """Decode what a filter passed on or a map made, as if the record had it."""

    def decode_value(task: Task, value: Any) -> Any:
        if value is not None and type(value) is not bytes:
            raise undecodable(task.record, value)
        return decode(task.record._replace(value=value))

    return decode_value
