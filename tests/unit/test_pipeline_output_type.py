"""The type of the outputs, for the columns of the queries: what the last function is annotated to return."""

from __future__ import annotations

import functools
from collections.abc import Awaitable  # noqa: TC003  # annotations are resolved here
from dataclasses import dataclass
from typing import Any, Optional

import pytest

from anabranch import Context, Out, Pipeline, UsageError
from anabranch.pipeline.handlers import name_of


@dataclass
class Receipt:
    order: str


@dataclass
class Refund:
    order: str


async def plain(value: bytes) -> Receipt: ...
async def optional(value: bytes) -> Optional[Receipt]: ...  # noqa: UP045  # as people write it
async def either(value: bytes) -> Receipt | None: ...
async def several(value: bytes) -> list[Receipt]: ...
async def several_outs(value: bytes) -> list[Out[Receipt] | None] | None: ...
async def out(value: bytes, ctx: Context) -> Out[Receipt]: ...
async def tombstone(value: bytes) -> Out[Receipt | None]: ...
async def array(value: bytes) -> Out[list[int]]: ...
async def mixed(value: bytes) -> Receipt | Out[Receipt] | list[Receipt]: ...
async def two(value: bytes) -> Receipt | Refund: ...
async def raw(value: bytes) -> bytes: ...
async def anything(value: bytes) -> Any: ...
async def bare_list(value: bytes) -> list: ...  # type: ignore[type-arg]  # as people write it
async def silent(value: bytes) -> None: ...
async def unsaid(value): ...  # type: ignore[no-untyped-def]  # as people write it
async def unknown(value: bytes) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821  # meant
def awaited(value: bytes) -> Awaitable[Receipt]: ...
def also_context(value: bytes, ctx: Context) -> Receipt: ...
def refunded(receipt: Receipt) -> Refund: ...
def is_large(refund: Refund) -> bool: ...


class Charger:
    async def __call__(self, value: bytes) -> Receipt: ...

    def method(self, value: bytes) -> list[Receipt]: ...


@functools.wraps(plain)
def wrapped(value: bytes) -> Any: ...


def typed(handler: Any) -> Any:
    return Pipeline("b").read("o").process(handler).write_table("./a").plan().output_type


@pytest.mark.parametrize(
    "handler",
    [
        *(plain, optional, either, several, several_outs, out, mixed, awaited, also_context, wrapped),
        *(Charger(), Charger().method, functools.partial(plain)),
    ],
    ids=name_of,
)
def test_lists_outs_and_nones_are_looked_into(handler: Any) -> None:
    """Each of them gives receipts, one at a time."""
    assert typed(handler) is Receipt


def test_what_is_inside_an_out_is_the_value() -> None:
    """A list in an Out is a JSON array, not several outputs; None in it is a tombstone."""
    assert typed(array) == list[int]
    assert typed(tombstone) is Receipt


def test_other_types_are_as_they_are() -> None:
    """A union of two stays one; what nobody says is Any."""
    assert typed(raw) is bytes
    assert typed(two) == Receipt | Refund
    assert typed(anything) is typed(unsaid) is typed(bare_list) is typed(lambda value: value) is Any


def test_what_stands_behind_the_handler_decides() -> None:
    """Maps change the outputs, filters do not."""
    read = Pipeline("b").read("o").process(plain)
    assert read.map(refunded).filter(is_large).write_table("./a").plan().output_type is Refund
    assert read.map(lambda receipt: receipt.order).write_table("./a").plan().output_type is Any
    assert read.map(Refund).write_table("./a").plan().output_type is Refund


def test_a_handler_that_returns_nothing_has_nothing_for_a_query() -> None:
    """The query would wait for ever; without one it is fine."""
    with pytest.raises(UsageError, match=r"silent returns nothing .* return the value"):
        typed(silent)
    assert Pipeline("b").read("o").process(silent).plan().output_type is None


def test_an_annotation_that_cannot_be_found_is_refused_where_it_matters() -> None:
    """With a schema, or without a query, nobody needs it."""
    with pytest.raises(UsageError, match=r"unknown: .*'Nowhere' is not defined.* or give schema=…"):
        typed(unknown)
    read = Pipeline("b").read("o").process(unknown)
    assert read.write_table("./a", schema=Receipt).plan().output_type is Receipt
    assert read.write("p").plan().output_type is None
    assert "cannot be told: unknown" in read.write_table("./a").explain()
