"""What a handler returns becomes records to be written, or the next step's value, or a sentence."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from pipeline_tasks import outputs, run_steps, task

from anabranch import Context, Out, Pipeline, Poison, RetryAfter
from anabranch.core.work import FILTERED

READ = Pipeline("billing").read("orders")


@dataclass
class Receipt:
    total: int


class Colour(StrEnum):
    RED = "red"


class Struct(msgspec.Struct):
    total: int


def giving(result: Any) -> Pipeline[Any]:
    """A pipeline whose one handler returns this, and which writes."""
    return READ.process(lambda _: result).write("receipts")


ENCODED: list[tuple[Any, bytes | None]] = [
    (b"\xff", b"\xff"),
    (b"", b""),
    (bytearray(b"a"), b"a"),
    (memoryview(b"a"), b"a"),
    ("é", "é".encode()),
    (Colour.RED, b"red"),
    (7, b"7"),
    (False, b"false"),
    ({"a": [1, None]}, b'{"a":[1,null]}'),
    ((1, 2), b"[1,2]"),
    (Receipt(3), b'{"total":3}'),
    (Struct(3), b'{"total":3}'),
    (Out(None), None),
    (Out([1, 2]), b"[1,2]"),
    (Out(Receipt(3)), b'{"total":3}'),
]


@pytest.mark.parametrize(("result", "expected"), ENCODED, ids=range(len(ENCODED)))
def test_a_value_is_encoded_by_its_kind(result: Any, expected: bytes | None) -> None:
    """Bytes as they are, text as UTF-8, everything else as JSON; it goes to the sink under the record's key."""
    (output,) = outputs(giving(result))
    assert (output.topic, output.key, output.value, output.timestamp_ms) == ("receipts", b"k", expected, None)


def test_none_is_no_output() -> None:
    """Also as a part of a list."""
    assert outputs(giving(None)) == []
    assert outputs(giving([])) == []
    assert [output.value for output in outputs(giving([None, "a", None, Out("b")]))] == [b"a", b"b"]


def test_out_overrides_key_topic_headers_and_time() -> None:
    """None is a choice for a key; left out it is the record's."""
    at = datetime(2031, 5, 4, 1, tzinfo=timezone(timedelta(hours=1)))
    result = [
        Out("a", key=None),
        Out("b", key="kéy", topic="elsewhere"),
        Out("c", key=b"", timestamp=at),
    ]
    made = outputs(giving(result))
    assert [(each.topic, each.key) for each in made] == [
        ("receipts", None),
        ("elsewhere", "kéy".encode()),
        ("receipts", b""),
    ]
    assert [each.timestamp_ms for each in made] == [None, None, 1_935_619_200_000]


def test_headers_are_carried_over_and_say_where_the_output_comes_from() -> None:
    """Those of a pipeline before this one are replaced, so a chain of pipelines does not pile them up."""
    carried = (("trace", b"1"), ("trace", b"2"), ("none", None), ("anabranch.topic", b"before"), ("anabranch.x", b""))
    before = datetime.now(UTC)
    (output,) = outputs(READ.process(lambda _: "a", name="charge").write("receipts"), task(headers=carried))
    headers = list(output.headers)
    assert headers[:3] == [("trace", b"1"), ("trace", b"2"), ("none", None)]
    name, handled_at = headers.pop()
    assert name == "anabranch.handled_at"
    assert handled_at is not None
    assert before - timedelta(seconds=1) <= datetime.fromtimestamp(int(handled_at) / 1000, UTC)
    assert headers[3:] == [
        ("anabranch.topic", b"orders"),
        ("anabranch.partition", b"3"),
        ("anabranch.offset", b"7"),
        ("anabranch.timestamp", b"1700000000123"),
        ("anabranch.step", b"charge"),
        ("anabranch.attempts", b"1"),
    ]


@pytest.mark.parametrize("given", [{"trace": "é", "new": b"n"}, [("trace", "é"), ("new", b"n")]])
def test_headers_of_out_are_added_and_replace_those_of_the_same_name(given: Any) -> None:
    """As a mapping or as pairs; text becomes UTF-8."""
    on = task(headers=(("trace", b"1"), ("kept", b"k")))
    (output,) = outputs(giving(Out("a", headers=given)), on)
    assert list(output.headers[:3]) == [("kept", b"k"), ("trace", "é".encode()), ("new", b"n")]


def test_without_write_plain_values_are_dropped_and_out_with_a_topic_is_written() -> None:
    """A handler may return what its caller in a test wants to see."""
    silent = READ.process(lambda _: ["dropped", 7, Out("kept", topic="elsewhere")])
    assert [(each.topic, each.value) for each in outputs(silent)] == [("elsewhere", b"kept")]
    assert outputs(READ.process(lambda _: object())) == []
    assert [each.topic for each in outputs(READ.process(lambda _: Out("a", topic="b")))] == ["b"]


def generate() -> Iterator[int]:
    yield 1


REFUSED: list[tuple[str, Any, str]] = [
    ("an object", object(), "a value of type object that cannot be written"),
    ("an object inside", {"a": [object()]}, "cannot be written"),
    ("a lone surrogate", "\ud800", "a value of type str that cannot be written"),
    ("a generator", generate(), "return a list of results instead"),
    ("a generator in a list", [generate()], "return a list of results instead"),
    ("a key that is a number", Out("a", key=7), "a key is bytes, str or None"),
    ("a key that is no text", Out("a", key="\ud800"), "not text"),
    ("a header that is a number", Out("a", headers={"a": 7}), "give bytes, str or None"),
    ("a header of ours", Out("a", headers={"anabranch.step": "x"}), "does not begin with|do not begin with"),
    ("headers that are no pairs", Out("a", headers=["a"]), "pairs of name and value"),
    ("a topic that cannot be", Out("a", topic="a b"), "a name is made of"),
    ("a topic of the broker", Out("a", topic="__consumer_offsets"), "kept by the broker"),
    ("a time without zone", Out("a", timestamp=datetime(2031, 5, 4)), "with a time zone"),  # noqa: DTZ001  # meant
    ("a time that is a number", Out("a", timestamp=7), "with a time zone"),
]


@pytest.mark.parametrize(("result", "said"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_be_written_is_poison(result: Any, said: str) -> None:
    """Another attempt would give the same: the record goes to the dead letters with a sentence."""
    with pytest.raises(Poison, match=said):
        outputs(giving(result))


def test_out_without_any_topic_is_poison() -> None:
    """It was meant to be written."""
    with pytest.raises(Poison, match=r"add \.write\(topic\) or Out\(topic=…?\)"):
        outputs(READ.process(lambda _: Out("a")))


def test_a_coroutine_that_a_plain_handler_returns_is_refused_and_closed() -> None:
    """A lambda round an async function would never be awaited; no warning is left behind."""

    async def charge(value: Any) -> None:
        return None

    silent = READ.process(lambda _: charge(b""))
    for pipeline in (silent, silent.write("a")):
        with pytest.raises(Poison, match="make the handler `async def`"):
            run_steps(pipeline, task())


def test_in_a_middle_step_the_value_goes_on_as_it_is() -> None:
    """Any object, also a list: nothing is encoded between steps."""
    seen: list[Any] = []

    def second(value: Any, ctx: Context) -> None:
        seen.append((value, ctx.step))

    thing = object()
    for value in (thing, [1, 2], {"a": 1}):
        run_steps(READ.process(lambda _, value=value: value).process(second), task())
    assert seen == [(thing, "second"), ([1, 2], "second"), ({"a": 1}, "second")]


def test_in_a_middle_step_none_ends_the_record() -> None:
    """The next step is not called, whoever asks it."""
    plan = READ.process(lambda _: None).map(len).process(len).plan()
    on = task()
    first, second = plan.steps
    assert first.finish is not None
    on.value = first.finish(on, None)
    assert on.value is None
    assert second.prepare(on) is FILTERED


@pytest.mark.parametrize("result", [Out("a"), [Out("a", topic="b")], generate()])
def test_in_a_middle_step_out_is_refused(result: Any) -> None:
    """Only the last step writes."""
    with pytest.raises(Poison, match=r"another process step follows|return a list"):
        run_steps(READ.process(lambda _: result).process(len), task())


def test_maps_and_filters_before_between_and_after_handlers() -> None:
    """Each sees what the step before it gave."""
    pipeline = (
        READ.map(bytes.decode)
        .filter(str.isdigit)
        .process(int)
        .map(lambda number: number + 1)
        .filter(lambda number: number < 100)
        .process(str)
        .map(lambda text: text * 2)
        .filter(lambda text: text != "77")
        .write("doubled")
    )
    assert [each.value for each in outputs(pipeline, task(b"4"))] == [b"55"]
    assert run_steps(pipeline, task(b"x")) is FILTERED
    assert run_steps(pipeline, task(b"99")) is FILTERED
    assert outputs(pipeline, task(b"6")) == []


def test_after_the_last_handler_an_error_is_poison() -> None:
    """Another attempt would call a handler again that has already had its effect."""

    def later(value: Any) -> Any:
        raise RetryAfter(1)

    with pytest.raises(Poison, match=r"after charge: TypeError"):
        outputs(READ.process(lambda _: 7, name="charge").map(len).write("a"))
    with pytest.raises(RetryAfter):
        outputs(READ.process(lambda _: 7).map(later).write("a"))
    with pytest.raises(Poison, match="Out from the map"):
        outputs(READ.process(lambda _: Out(7)).map(len).write("a"))
    assert [each.key for each in outputs(READ.process(lambda _: 7).map(lambda n: Out(n, key="n")).write("a"))] == [b"n"]
    assert outputs(READ.process(lambda _: 7).map(lambda _: None).write("a")) == []


def test_an_error_of_a_map_or_filter_before_the_handler_is_the_users_own() -> None:
    """The step's retry policy rules on it, as on the handler's own errors."""
    with pytest.raises(ZeroDivisionError):
        run_steps(READ.map(lambda _: 1 // 0).process(len), task())


def test_the_identity_step_can_be_awaited() -> None:
    """What engines call is an async function."""
    (step,) = READ.write("copy").plan().steps
    assert asyncio.run(step.handler(b"v")) == b"v"
