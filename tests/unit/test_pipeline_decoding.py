"""Decoding: each type from its bytes, null values said, and whatever the bytes are, poison and never a crash."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Optional, TypedDict

import msgspec
import pytest
from pipeline_tasks import task

from anabranch import DecodeError, Pipeline, Poison, Record, RetryAfter, UsageError
from anabranch.core.work import FILTERED


@dataclass
class Order:
    id: str
    total: int

    def __post_init__(self) -> None:
        if self.total == 13:
            raise RuntimeError("unlucky")


class Struct(msgspec.Struct):
    id: str
    total: int


class Dict(TypedDict):
    id: str
    total: int


class Tuple(NamedTuple):
    id: str
    total: int


@dataclass
class Tree:
    children: list["Tree"]


@dataclass
class Folder:
    path: Path


JSON = b'{"id": "a", "total": 3}'


def decoded(target: Any, value: bytes | None, **options: Any) -> Any:
    pipeline = Pipeline("billing").read("orders", target, **options).process(lambda value: value)
    return pipeline.plan().steps[0].prepare(task(value))


GOOD: list[tuple[Any, bytes, Any]] = [
    (bytes, b"\xff", b"\xff"),
    (bytes, b"", b""),
    (str, "é".encode(), "é"),
    (dict, JSON, {"id": "a", "total": 3}),
    (list, b"[1, 2]", [1, 2]),
    (Any, b"null", None),
    (int, b"7", 7),
    (dict[str, Any], JSON, {"id": "a", "total": 3}),
    (list[int], b"[1]", [1]),
    (Tree, b'{"children": [{"children": []}]}', Tree([Tree([])])),
    (Order, JSON, Order("a", 3)),
    (Struct, JSON, Struct("a", 3)),
    (Dict, JSON, {"id": "a", "total": 3}),
    (Tuple, b'["a", 3]', Tuple("a", 3)),
    (Order | None, JSON, Order("a", 3)),
    (Order | int, b"7", 7),
    (str | None, b"x", "x"),
    (bytes | None, b"x", b"x"),
]


@pytest.mark.parametrize(("target", "value", "expected"), GOOD, ids=[str(case[0]) for case in GOOD])
def test_a_value_becomes_what_the_pipeline_reads(target: Any, value: bytes, expected: Any) -> None:
    """Bytes as they are, text from UTF-8, everything else from JSON."""
    assert decoded(target, value) == expected


BAD: list[tuple[Any, bytes, str]] = [
    (str, b"\xff", "is not str: UnicodeDecodeError"),
    (dict, b"{", "is not dict: DecodeError"),
    (dict, b"[1]", "is not dict"),
    (Any, b"", "is not Any"),
    (Order, b'{"id": "a"}', "is not Order: ValidationError: .*missing required field `total`"),
    (Order, b'{"id": "a", "total": 13}', "is not Order: RuntimeError: unlucky"),
    (Struct, b'{"id": 1, "total": 3}', "is not Struct"),
    (Order | None, b"7", r"is not Order \| None"),
    (list, b"[" * 100_000, "is not list"),
]


@pytest.mark.parametrize(("target", "value", "said"), BAD, ids=[str(case[0]) for case in BAD])
def test_bytes_that_are_something_else_are_poison(target: Any, value: bytes, said: str) -> None:
    """The error names the record's place and what is wrong with it; it is one that retries cannot help."""
    with pytest.raises(DecodeError, match=f"(?s)orders/3@7 {said}|{said}") as caught:
        decoded(target, value)
    assert isinstance(caught.value, Poison)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    "target",
    [bytes | None, str | None, Order | None, Optional[Order], dict | None],  # noqa: UP045  # older spelling
)
def test_a_null_value_is_given_as_none_where_the_type_allows_it(target: Any) -> None:
    """A tombstone is a record like any other."""
    assert decoded(target, None) is None


@pytest.mark.parametrize("target", [bytes, str, Order, dict, int])
def test_a_null_value_is_poison_where_the_type_does_not_allow_it(target: Any) -> None:
    """The sentence says how to be given it."""
    with pytest.raises(DecodeError, match=rf"null value.*read `{target.__name__} \| None`"):
        decoded(target, None)


def test_a_decode_function_is_given_bytes_or_the_record() -> None:
    """Which of them its parameter says, by name or by annotation."""

    def of_bytes(data: bytes) -> str:
        return data.decode().upper()

    def of_record(record: Any) -> str:
        return f"{record.topic}@{record.offset}"

    def annotated(what: Record) -> int:
        return what.partition

    def maybe(data: bytes | None) -> bool:
        return data is None

    pipeline = Pipeline("billing")
    read = [pipeline.read("orders", decode=function) for function in (of_bytes, of_record, annotated, maybe)]
    steps = [each.process(lambda value: value).plan().steps[0] for each in read]
    assert [step.prepare(task(b"v")) for step in steps] == ["V", "orders@7", 3, False]
    assert [step.prepare(task(None)) for step in steps[1:]] == ["orders@7", 3, True]
    with pytest.raises(DecodeError, match=r"of_bytes does not take: annotate its parameter as `bytes \| None`"):
        steps[0].prepare(task(None))


def test_a_decode_function_that_fails_means_poison_unless_it_says_otherwise() -> None:
    """What is raised on purpose is kept."""

    def fails(data: bytes) -> Any:
        if data == b"later":
            raise RetryAfter(3)
        raise KeyError(data)

    step = Pipeline("billing").read("orders", decode=fails).process(lambda value: value).plan().steps[0]
    with pytest.raises(DecodeError, match="cannot be decoded by fails: KeyError"):
        step.prepare(task(b"v"))
    with pytest.raises(RetryAfter):
        step.prepare(task(b"later"))


def test_decode_may_be_a_step_of_its_own() -> None:
    """Right after read it is the same as read's type, also for null values; later it decodes what it is given."""
    read = Pipeline("billing").read("orders")

    def prepare(pipeline: Pipeline[Any], value: bytes | None) -> Any:
        return pipeline.process(lambda value: value).plan().steps[0].prepare(task(value))

    assert prepare(read.decode(Order), JSON) == Order("a", 3)
    assert prepare(read.decode(Order | None), None) is None
    assert prepare(read.decode(bytes.upper), b"v") == b"V"
    assert prepare(read.decode(dict[str, Any]), JSON) == {"id": "a", "total": 3}
    framed = read.filter(lambda data: data[:1] == b"\0").map(lambda data: data[1:]).decode(Order)
    assert prepare(framed, b"\0" + JSON) == Order("a", 3)
    assert prepare(framed, JSON) is FILTERED
    with pytest.raises(DecodeError, match="is not Order"):
        prepare(framed, b"\0")
    with pytest.raises(DecodeError, match="decode needs bytes, but what stands before it gave a value of type int"):
        prepare(read.map(len).decode(Order), b"v")


class Opaque:
    pass


@dataclass
class Deep:
    tree: Tree
    folders: dict[str, list[Folder | None]]


@pytest.mark.parametrize("target", [Opaque, Opaque | None, list[1], "Order", Order | Struct, Folder, Deep])
def test_a_type_that_cannot_be_decoded_is_refused_when_the_pipeline_is_built(target: Any) -> None:
    """Not at the first record."""
    with pytest.raises(UsageError, match=r"decode function instead"):
        Pipeline("billing").read("orders", target)


def test_neither_pydantic_nor_anything_slow_is_imported_with_the_builder() -> None:
    """A worker process imports the builder; what it does not use it does not load."""
    code = (
        "import sys, anabranch; anabranch.Pipeline('a').read('b').process(print).plan();"
        "print([m for m in ('pydantic', 'pyspark', 'confluent_kafka', 'uvloop', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
