"""Handlers are looked at once: async or plain, with or without the context, whatever they are wrapped in."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from anabranch import Context, Pipeline, UsageError
from anabranch.pipeline.handlers import inspect_handler


def plain(value: Any) -> Any:
    return value


def plain_with_context(value: Any, ctx: Context) -> Any:
    return value


async def coroutine(value: Any) -> Any:
    return value


async def coroutine_with_context(value: Any, ctx: Context) -> Any:
    return value


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    return wrapper


def logged_without_wraps(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


class Service:
    def method(self, value: Any) -> Any:
        return value

    async def coroutine_method(self, value: Any, ctx: Context) -> Any:
        return value

    @classmethod
    def of_class(cls, value: Any) -> Any:
        return value

    @staticmethod
    def of_none(value: Any, ctx: Context) -> Any:
        return value


class Callable1:
    def __call__(self, value: Any) -> Any:
        return value


class Callable2:
    async def __call__(self, value: Any, ctx: Context) -> Any:
        return value


def with_option(value: Any, timeout: int = 5) -> Any:
    return value


def with_optional_context(value: Any, ctx: Context | None = None) -> Any:
    return value


def with_annotated_context(value: Any, about: Context = None) -> Any:
    return value


def all_optional(value: Any = None) -> Any:
    return value


def with_more(value: Any, *others: Any) -> Any:
    return value


async def with_client(client: str, value: Any, ctx: Context) -> Any:
    return value


async def with_keyword(value: Any, *, client: str) -> Any:
    return value


def with_default_keyword(value: Any, *, loud: bool = False) -> Any:
    return value


SEEN: list[tuple[str, Any, bool, bool]] = [
    ("plain", plain, False, False),
    ("plain with ctx", plain_with_context, False, True),
    ("async", coroutine, True, False),
    ("async with ctx", coroutine_with_context, True, True),
    ("lambda", lambda value: value, False, False),
    ("lambda with ctx", lambda value, ctx: value, False, True),
    ("bound method", Service().method, False, False),
    ("bound coroutine method", Service().coroutine_method, True, True),
    ("class method", Service.of_class, False, False),
    ("static method", Service.of_none, False, True),
    ("callable object", Callable1(), False, False),
    ("async callable object", Callable2(), True, True),
    ("partial", functools.partial(with_client, "client"), True, True),
    ("partial by keyword", functools.partial(with_keyword, client="client"), True, False),
    ("partial of an async callable object", functools.partial(Callable2()), True, True),
    ("decorated", logged(plain_with_context), False, True),
    ("decorated coroutine function", logged(coroutine), True, False),
    ("decorated twice", logged(logged(coroutine_with_context)), True, True),
    ("an option is not the context", with_option, False, False),
    ("an optional context", with_optional_context, False, True),
    ("a context by its annotation", with_annotated_context, False, True),
    ("all optional", all_optional, False, False),
    ("more", with_more, False, False),
    ("keyword with default", with_default_keyword, False, False),
    ("print", print, False, False),
    ("a built-in method", bytes.upper, False, False),
    ("a library function", json.loads, False, False),
    ("a class", int, False, False),
]


@pytest.mark.parametrize(("function", "is_async", "wants_context"), [c[1:] for c in SEEN], ids=[c[0] for c in SEEN])
def test_how_a_handler_must_be_called_is_seen(function: Any, is_async: bool, wants_context: bool) -> None:
    """Engines ask the plan, never the function."""
    handler = inspect_handler(function)
    assert (handler.is_async, handler.wants_context) == (is_async, wants_context)


@pytest.mark.parametrize("function", [logged(coroutine), logged(logged(coroutine)), coroutine, Callable2().__call__])
def test_an_async_handler_can_be_awaited_as_it_is_in_the_plan(function: Any) -> None:
    """A plain decorator round an async function hands a coroutine through; the plan's handler awaits it."""
    handler = inspect_handler(function)
    arguments = (b"v", None) if handler.wants_context else (b"v",)
    assert asyncio.run(handler.function(*arguments)) == b"v"


def test_a_decorator_that_already_waited_is_fine_too() -> None:
    """Only a call can tell whether a plain wrapper gives a coroutine or a value."""

    @functools.wraps(coroutine)
    def wrapper(value: Any) -> Any:
        return "done"

    assert asyncio.run(inspect_handler(wrapper).function(b"v")) == "done"


def nothing() -> None:
    return None


def three(value: Any, ctx: Context, client: str) -> None:
    return None


def generator(value: Any) -> Iterator[int]:
    yield 1


async def async_generator(value: Any) -> AsyncIterator[int]:
    yield 1


REFUSED: list[tuple[str, Any, str]] = [
    ("no argument", nothing, r"takes \(\), but a handler is called as nothing\(value\) or nothing\(value, ctx\)"),
    ("three arguments", three, r"takes \(value, ctx, client\).*functools.partial"),
    ("a required keyword", with_keyword, r"takes \(value, client=\).*functools.partial"),
    ("decorated without wraps", logged_without_wraps(coroutine), "functools.wraps"),
    ("a generator", generator, "return a list"),
    ("an async generator", async_generator, "return a list"),
    ("a text", "plain", "give a function"),
]


@pytest.mark.parametrize(("function", "fix"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_handler_that_cannot_be_called_is_refused(function: Any, fix: str) -> None:
    """The sentence says how a handler is called and what to do."""
    with pytest.raises(UsageError, match=fix):
        Pipeline("billing").read("orders").process(function)


INLINE: list[tuple[str, Any, str]] = [
    ("async", coroutine, r"use \.process\(coroutine\)"),
    ("a generator", generator, "return the value"),
    ("no argument", nothing, "exactly one required argument"),
    ("two arguments", plain_with_context, "exactly one required argument"),
    ("a required keyword", with_keyword, "use .process"),
    ("not callable", 7, "give a function"),
]


@pytest.mark.parametrize("step", ["map", "filter"])
@pytest.mark.parametrize(("function", "fix"), [case[1:] for case in INLINE], ids=[case[0] for case in INLINE])
def test_maps_and_filters_are_plain_functions_of_one_argument(step: str, function: Any, fix: str) -> None:
    """They run inline, so one that would wait is sent to process."""
    with pytest.raises(UsageError, match=fix):
        getattr(Pipeline("billing").read("orders"), step)(function)
