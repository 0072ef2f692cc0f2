"""Runs the compiled steps of a pipeline on one record, without an engine."""

import asyncio
import inspect
from typing import Any

from anabranch import Context, Pipeline, Record
from anabranch.core.records import Headers
from anabranch.core.work import FILTERED, Output, Task


class Assigned:
    """As much of an assignment as a context looks at."""

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id


def task(
    value: bytes | None = b"v",
    *,
    key: bytes | None = b"k",
    headers: Headers = (),
    topic: str = "orders",
    offset: int = 7,
    topic_id: str = "",
) -> Task:
    made = Task(Record(topic, 3, offset, key, value, headers, 1_700_000_000_123), Assigned(topic_id), 1, 0, 10)
    made.attempt = 1
    return made


def run_steps(pipeline: Pipeline[Any], on: Task) -> Any:
    """Return what the last step makes of a task: outputs, FILTERED, or None when a step before it ended the record."""
    for step in pipeline.plan().steps:
        argument = step.prepare(on)
        if argument is FILTERED:
            return FILTERED
        arguments = (argument, Context(on, step.name)) if step.wants_context else (argument,)
        result = step.handler(*arguments)
        if inspect.iscoroutine(result) and step.is_async:
            result = asyncio.run(_awaited(result))
        on.value = result if step.finish is None else step.finish(on, result)
        on.step += 1
        if on.value is None:
            return None
    return on.value


def outputs(pipeline: Pipeline[Any], on: Task | None = None) -> list[Output]:
    return list(run_steps(pipeline, on or task()))


async def _awaited(result: Any) -> Any:
    return await result
