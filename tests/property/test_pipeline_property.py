"""Compiled pipelines under random bytes, values, steps and names, beside a dumb interpretation of the same."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import Context, DecodeError, Pipeline, Poison, Record
from anabranch.core.work import FILTERED, Task
from anabranch.pipeline.names import step_name


@dataclass
class Order:
    id: str
    total: int
    parts: list[str]


class Struct(msgspec.Struct):
    id: str


TARGETS = [bytes, str, dict, list, Any, int, Order, Struct, Order | None, bytes | None, list[Order]]
READERS = {str(target): Pipeline("billing").read("orders", target).process(print).plan().steps[0] for target in TARGETS}
WRITER = Pipeline("billing").read("orders").process(print).write("receipts").plan().steps[0]

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
NEARLY_JSON = JSON_VALUES.map(msgspec.json.encode)


def task(
    value: bytes | None, key: bytes | None = b"k", topic: str = "orders", partition: int = 0, offset: int = 0
) -> Task:
    return Task(Record(topic, partition, offset, key, value), None, 1, 0, 0)


@pytest.mark.parametrize("target", READERS)
@given(value=st.none() | st.binary(max_size=64) | NEARLY_JSON)
def test_whatever_the_bytes_are_only_a_decode_error_comes_out(target: str, value: bytes | None) -> None:
    """A record is decoded or it is poison; nothing else can happen to the step."""
    try:
        READERS[target].prepare(task(value))
    except DecodeError as error:
        assert "orders/0@0" in str(error)  # noqa: PT017  # most bytes are good for some types


@given(value=JSON_VALUES.filter(lambda value: not isinstance(value, (list, str, type(None)))))
def test_what_is_written_as_json_is_read_back(value: Any) -> None:
    """One pipeline's output is the next one's input."""
    assert WRITER.finish is not None
    (output,) = WRITER.finish(task(b""), value)
    assert READERS[str(Any)].prepare(task(output.value)) == value


@given(values=st.lists(st.binary(max_size=8) | st.text(max_size=8) | st.integers(0, 9), max_size=5))
def test_a_list_is_written_in_its_order(values: list[Any]) -> None:
    """Each part as it would be alone."""
    assert WRITER.finish is not None
    written = [output.value for output in WRITER.finish(task(b""), values)]
    assert written == [WRITER.finish(task(b""), value)[0].value for value in values]


INLINE = {
    "add": ("map", lambda number: number + 1),
    "double": ("map", lambda number: number * 2),
    "none": ("map", lambda number: None if number == 3 else number),
    "odd": ("filter", lambda number: number is None or number % 2),
    "small": ("filter", lambda number: number is None or number < 20),
    "process": ("process", lambda number: number - 1),
    "ending": ("process", lambda number: None if number == 5 else number),
}


def interpreted(names: list[str], value: Any) -> Any:
    """Say what becomes of a value: `dropped`, or the value at the end. None from a handler ends the record."""
    for name in names:
        verb, function = INLINE[name]
        result = function(value)
        if verb == "filter":
            if not result:
                return "dropped"
            continue
        if verb == "process" and result is None:
            return "dropped"
        value = result
    return "dropped" if value is None else value


def compiled(pipeline: Pipeline[Any], on: Task) -> Any:
    for step in pipeline.plan().steps:
        argument = step.prepare(on)
        if argument is FILTERED:
            return "dropped"
        assert step.finish is not None
        on.value = step.finish(on, step.handler(argument))
    outputs = on.value
    return msgspec.json.decode(outputs[0].value) if outputs else "dropped"


@given(names=st.lists(st.sampled_from(sorted(INLINE)), max_size=8), number=st.integers(0, 12))
def test_compiled_steps_do_what_a_loop_over_them_would(names: list[str], number: int) -> None:
    """Maps and filters before, between and after handlers, in any order and number."""
    pipeline: Pipeline[Any] = Pipeline("billing").read("orders", int)
    for name in names:
        verb, function = INLINE[name]
        pipeline = getattr(pipeline, verb)(function)
    if not any(INLINE[name][0] == "process" for name in names):
        pipeline = pipeline.process(lambda number: number)
    try:
        expected = interpreted(names, number)
    except TypeError:
        expected = "failed"
    try:
        got = compiled(pipeline.write("receipts"), task(b"%d" % number))
    except (TypeError, Poison):
        got = "failed"
    assert got == expected


PLACES = st.tuples(
    st.text("ab.", max_size=3), st.integers(0, 20), st.integers(0, 20), st.text("ab.-1", min_size=1, max_size=3)
)


@given(one=PLACES, other=PLACES)
def test_request_ids_are_equal_only_for_the_same_call(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """Whatever the names are made of, two places never read as one."""

    def identify(place: tuple[Any, ...]) -> str:
        topic, partition, offset, step = place
        return Context(task(b"", topic=topic, partition=partition, offset=offset), step).request_id

    assert (identify(one) == identify(other)) == (one == other)


@given(derived=st.lists(st.sampled_from(["charge", "charge-2", "<lambda>", "__call__", "", "é"]), max_size=6))
def test_derived_step_names_are_never_the_same(derived: list[str]) -> None:
    """Whatever the handlers are called."""
    taken: list[str] = []
    for name in derived:
        taken.append(step_name(None, name, frozenset(taken)))
    assert len(set(taken)) == len(taken)
    assert all(name.isascii() and name for name in taken)
