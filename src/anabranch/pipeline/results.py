"""From what a handler returned to the records to be written, or to the value that the next step is called with.

A list is several results; to write a JSON array, return `Out([…])`. What stands between the last `process` and `.write`
(maps, filters) runs here too, after the handler: its errors are poison, because another attempt would call a handler
again that has already had its effect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import HandlerError, Poison
from anabranch.core.work import FILTERED, Output
from anabranch.pipeline.encoding import encode_key, encode_value
from anabranch.pipeline.names import topic_fault
from anabranch.pipeline.outputs import UNSET, Out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.core.records import Headers
    from anabranch.core.work import Task

HEADER_PREFIX = "anabranch."
_TOPIC, _PARTITION, _OFFSET, _TIMESTAMP, _STEP, _ATTEMPTS, _HANDLED_AT = (
    HEADER_PREFIX + name for name in ("topic", "partition", "offset", "timestamp", "step", "attempts", "handled_at")
)
_LAZY = (GeneratorType, AsyncGeneratorType, CoroutineType)
_NOTHING: tuple[Output, ...] = ()


def compile_finish(step: str, sink: str | None, follow: Callable[[Task, Any], Any] | None) -> Callable[..., Any]:
    """Return the last step's `finish`: results, through what follows the handler, to encoded outputs."""
    step_header = (_STEP, step.encode())

    def finish(task: Task, result: Any) -> Sequence[Output]:
        if result is None:
            return _NOTHING
        if follow is not None:
            result = _followed(follow, step, task, result)
            if result is None:
                return _NOTHING
        kind = type(result)
        if kind is list:
            wanted = [each for each in result if each is not None and (sink is not None or type(each) is Out)]
        elif sink is not None or kind is Out:
            wanted = [result]
        else:
            _refuse_lazy(step, result)
            return _NOTHING
        record = task.record
        headers = (_carried(record.headers), _origin(task, step_header))
        return [_output(each, sink, step, record.key, headers) for each in wanted]

    return finish


def compile_pass_on(step: str) -> Callable[[Task, Any], Any]:
    """Return the `finish` of a step that another follows: the value goes on; what only a last one may give does not."""

    def pass_on(task: Task, result: Any) -> Any:  # noqa: ARG001  # one signature for all
        kind = type(result)
        if kind is Out or (kind is list and any(type(each) is Out for each in result)):
            raise Poison(
                f"{step} returned Out, but another process step follows: "
                "return the plain value that the next step is to be called with, and Out from the last step"
            )
        _refuse_lazy(step, result)
        return result

    return pass_on


def _followed(follow: Callable[[Task, Any], Any], step: str, task: Task, result: Any) -> Any:
    if type(result) is Out:
        raise Poison(f"{step} returned Out, but map or filter follows: return the plain value, and Out from the map")
    _refuse_lazy(step, result)
    try:
        value = follow(task, result)
    except HandlerError:
        raise
    except Exception as error:
        raise Poison(f"after {step}: {type(error).__name__}: {error}") from error
    return None if value is FILTERED else value


def _refuse_lazy(step: str, result: Any) -> None:
    if not isinstance(result, _LAZY):
        return
    if isinstance(result, CoroutineType):
        result.close()
        raise Poison(f"{step} returned a coroutine: make the handler `async def` and await it there")
    raise Poison(f"{step} returned a generator: return a list of results instead")


def _carried(headers: Headers) -> Headers:
    """Return the record's own headers, without those that a pipeline before this one has put there."""
    for name, _ in headers:
        if name.startswith(HEADER_PREFIX):
            return tuple([header for header in headers if not header[0].startswith(HEADER_PREFIX)])
    return headers


def _origin(task: Task, step_header: tuple[str, bytes]) -> Headers:
    """Return the headers that say where an output comes from."""
    topic, partition, offset, _, _, _, timestamp_ms, _ = task.record
    return (
        (_TOPIC, topic.encode()),
        (_PARTITION, b"%d" % partition),
        (_OFFSET, b"%d" % offset),
        (_TIMESTAMP, b"%d" % timestamp_ms),
        step_header,
        (_ATTEMPTS, b"%d" % task.attempt),
        (_HANDLED_AT, b"%d" % (time.time_ns() // 1_000_000)),
    )


def _output(result: Any, sink: str | None, step: str, key: bytes | None, headers: tuple[Headers, Headers]) -> Output:
    carried, origin = headers
    if type(result) is not Out:
        _refuse_lazy(step, result)
        return Output(sink or "", key, encode_value(result), carried + origin)
    topic = sink if result.topic is None else _topic(result.topic)
    if topic is None:
        raise Poison(
            f"{step} returned Out without a topic, and the pipeline writes none: add .write(topic) or Out(topic=…)"
        )
    return Output(
        topic,
        key if result.key is UNSET else encode_key(result.key),
        encode_value(result.value),
        _merged(carried, result.headers) + origin,
        _milliseconds(result.timestamp),
    )


def _topic(topic: Any) -> str:
    fault = topic_fault(topic)
    if fault is not None:
        raise Poison(f"the handler returned Out(topic={topic!r}): {fault}")
    return str(topic)


def _merged(carried: Headers, given: Any) -> Headers:
    if not given:
        return carried
    pairs = tuple(given.items()) if isinstance(given, Mapping) else tuple(given)
    try:
        added = tuple((name, _header(name, value)) for name, value in pairs)
    except (TypeError, ValueError) as error:
        raise Poison(
            f"the handler returned Out(headers={given!r}): give a mapping or pairs of name and value"
        ) from error
    replaced = {name for name, _ in added}
    return tuple(header for header in carried if header[0] not in replaced) + added


def _header(name: Any, value: Any) -> bytes | None:
    if not isinstance(name, str) or name.startswith(HEADER_PREFIX):
        raise Poison(
            f"the handler returned a header named {name!r}: names are texts that do not begin with {HEADER_PREFIX!r}"
        )
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise Poison(
        f"the handler returned a header {name!r} with a value of type {type(value).__name__}: give bytes, str or None"
    )


def _milliseconds(timestamp: Any) -> int | None:
    if timestamp is None:
        return None
    if not isinstance(timestamp, datetime) or timestamp.tzinfo is None:
        raise Poison(f"the handler returned Out(timestamp={timestamp!r}): give a datetime with a time zone")
    return round(timestamp.timestamp() * 1000)
