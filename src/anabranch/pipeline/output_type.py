"""What type the outputs of a pipeline have: what its last function is annotated to return, without its wrappings."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import UsageError
from anabranch.pipeline.draft import Decoding, Filter, Process
from anabranch.pipeline.handlers import name_of, return_annotation
from anabranch.pipeline.outputs import Out

if TYPE_CHECKING:
    from anabranch.pipeline.draft import Draft, Step

NoneType = type(None)
_AWAITED = {Awaitable, Coroutine}
_UNIONS = {typing.Union, types.UnionType}


def output_type(draft: Draft) -> Any:
    """Return the type of one output, or the schema that was given; Any when nothing says what it is.

    A list is several outputs and `Out` one with more to say, so both are looked into, and None is no output.
    """
    if draft.schema is not None:
        return draft.schema
    for step in reversed(draft.steps):
        if not isinstance(step, Filter):
            return _returned(step)
    return Any


def _returned(step: Step) -> Any:
    if isinstance(step, (Decoding, Filter)):
        return Any
    function = step.handler.function if isinstance(step, Process) else step.function
    name = name_of(function)
    try:
        annotation = return_annotation(function)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise UsageError(
            f"{name}: what it returns cannot be found out ({error}): its columns are made from that; "
            "define the type at the top of the module, or give schema=… to the first DataFrame step"
        ) from error
    if annotation is inspect.Signature.empty:
        return Any
    unwrapped = unwrap(annotation)
    if unwrapped is NoneType:
        raise UsageError(
            f"{name} returns nothing (it is annotated so), and what it returns is what a query reads: "
            "return the value that is to become a row"
        )
    return unwrapped


def unwrap(annotation: Any) -> Any:
    """Return the type of one output from what a handler is annotated to return."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _AWAITED:
        return unwrap(arguments[-1])
    if annotation is list:
        return Any
    if origin is list:
        return unwrap(arguments[0])
    if annotation is Out:
        return Any
    if origin is Out:
        return typing.Union[proper_members(arguments[0])]  # noqa: UP007  # from a tuple; one alone is itself
    if origin in _UNIONS:
        members = tuple(dict.fromkeys(unwrap(each) for each in arguments if each is not NoneType))
        return members[0] if len(members) == 1 else typing.Union[members]  # noqa: UP007  # from a tuple
    return NoneType if annotation is None else annotation


def proper_members(annotation: Any) -> tuple[Any, ...]:
    """Return the types that a value may have when it is not null: None inside `Out` is a tombstone."""
    if typing.get_origin(annotation) not in _UNIONS:
        return (annotation,)
    return tuple(each for each in typing.get_args(annotation) if each is not NoneType)
