"""The user's functions, looked at once when the pipeline is built: async or plain, and what they want to be given."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CONTEXT_NAMES = frozenset({"ctx", "context"})


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler and how it must be called."""

    function: Callable[..., Any]
    is_async: bool
    wants_context: bool
    label: str
    """As a reader of `explain()` knows it: `charge(order, ctx)`."""


@dataclass(frozen=True, slots=True)
class _Wants:
    required: tuple[inspect.Parameter, ...]
    optional: tuple[inspect.Parameter, ...]
    takes_any_number: bool
    required_keywords: tuple[str, ...]


def inspect_handler(function: Any) -> Handler:
    """Find out how a handler of `.process` must be called; refuse what cannot be one, naming the fix."""
    name = name_of(function)
    _refuse_uncallable(function, "process")
    if _is(function, inspect.isgeneratorfunction) or _is(function, inspect.isasyncgenfunction):
        raise UsageError(f"process({name}): a handler that yields is not supported; return a list of results instead")
    wants_context = _wants_context(function, name)
    arguments = "value, ctx" if wants_context else "value"
    if _is(function, inspect.iscoroutinefunction):
        return Handler(function, True, wants_context, f"{name}({arguments})")
    if inspect.iscoroutinefunction(inspect.unwrap(_bare(function))):
        # A plain decorator round an `async def` hands its coroutine through: only a call can tell.
        return Handler(_awaiting(function), True, wants_context, f"{name}({arguments})")
    return Handler(function, False, wants_context, f"{name}({arguments})")


def inspect_function(function: Any, step: str, argument: str = "value") -> Callable[[Any], Any]:
    """Check a function of `.filter`, `.map` or `key=`: plain, quick, of one argument."""
    name = name_of(function)
    _refuse_uncallable(function, step)
    if _is(function, inspect.iscoroutinefunction) or _is(function, inspect.isasyncgenfunction):
        raise UsageError(f"{step}({name}): runs inline and cannot wait; for an async function use .process({name})")
    if _is(function, inspect.isgeneratorfunction):
        raise UsageError(f"{step}({name}): a function that yields gives a generator, not a value; return the value")
    wants = _wants(function)
    if wants is not None:
        too_few = not (wants.required or wants.optional or wants.takes_any_number)
        if too_few or len(wants.required) > 1 or wants.required_keywords:
            raise UsageError(
                f"{step}({name}): takes {_spelled(wants)}, but is called as {name}({argument}): "
                "give it exactly one required argument (functools.partial can fill in the others)"
            )
    checked: Callable[[Any], Any] = function
    return checked


def inspect_frame_function(function: Any, step: str, *arguments: str) -> int:
    """Check a function of a DataFrame step: plain; return with how many of the arguments it is called, at least one."""
    name = name_of(function)
    _refuse_uncallable(function, step)
    for question in (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction):
        if _is(function, question):
            raise UsageError(f"{step}({name}): is called on the driver with a DataFrame; make it a plain function")
    wants = _wants(function)
    if wants is None:
        return 1
    too_few = not (wants.required or wants.optional or wants.takes_any_number)
    if too_few or len(wants.required) > len(arguments) or wants.required_keywords:
        calls = " or ".join(f"{name}({', '.join(arguments[: count + 1])})" for count in range(len(arguments)))
        raise UsageError(
            f"{step}({name}): takes {_spelled(wants)}, but is called as {calls}; "
            "functools.partial can fill in the others"
        )
    return max(1, len(wants.required))


def return_annotation(function: Any) -> Any:
    """Return what a function says it returns, resolved; `inspect.Signature.empty` when it does not say.

    Raises NameError, or what else resolving it raises, for a name that cannot be found from the function's module.
    """
    bare = inspect.unwrap(_bare(function))
    if inspect.isclass(bare):
        return bare
    called = bare if inspect.isroutine(bare) else inspect.unwrap(type(bare).__call__)
    called = getattr(called, "__func__", called)
    if not hasattr(called, "__annotations__") or "return" not in called.__annotations__:
        return inspect.Signature.empty
    own = {"return": called.__annotations__["return"]}
    namespace = getattr(called, "__globals__", {})
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=own), namespace, include_extras=False)["return"]


def first_parameter(function: Any) -> inspect.Parameter | None:
    """Return the parameter that takes the value, with its annotation resolved where that is possible."""
    wants = _wants(function)
    if wants is None or not (wants.required or wants.optional):
        return None
    return (wants.required or wants.optional)[0]


def name_of(function: Any) -> str:
    """Return what a reader calls the function."""
    bare = _bare(function)
    name = getattr(bare, "__name__", None)
    return name if isinstance(name, str) else type(bare).__name__


def _wants_context(function: Any, name: str) -> bool:
    wants = _wants(function)
    if wants is None:
        return False  # a built-in that does not tell: it is called with the value alone
    if not wants.required and not wants.optional:
        if wants.takes_any_number and not inspect.isfunction(inspect.unwrap(_bare(function))):
            return False  # print, and what is like it
        fix = " (if it is decorated, put functools.wraps into the decorator)" if wants.takes_any_number else ""
        raise _wrong_arity(name, wants, fix)
    if len(wants.required) > 2 or wants.required_keywords:
        raise _wrong_arity(name, wants, "; functools.partial can fill in the others")
    if len(wants.required) == 2:
        return True
    if len(wants.required) == 1:
        return bool(wants.optional) and _is_context(wants.optional[0])
    return len(wants.optional) > 1 and _is_context(wants.optional[1])


def _is_context(parameter: inspect.Parameter) -> bool:
    """Say whether an optional second parameter means the context; `timeout=5` does not."""
    annotation = parameter.annotation
    spelled = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return parameter.name in _CONTEXT_NAMES or spelled.rpartition(".")[2] == "Context"


def _wrong_arity(name: str, wants: _Wants, fix: str) -> UsageError:
    return UsageError(
        f"process({name}): takes {_spelled(wants)}, but a handler is called as {name}(value) or {name}(value, ctx){fix}"
    )


def _spelled(wants: _Wants) -> str:
    required = ", ".join(parameter.name for parameter in wants.required)
    if wants.required_keywords:
        keywords = ", ".join(f"{name}=" for name in wants.required_keywords)
        return f"({required}, {keywords})" if required else f"({keywords})"
    if wants.takes_any_number and not required:
        return "(*arguments)"
    return f"({required})"


def _wants(function: Any) -> _Wants | None:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return None
    parameters = signature.parameters.values()
    empty = inspect.Parameter.empty
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    return _Wants(
        required=tuple(each for each in positional if each.default is empty),
        optional=tuple(each for each in positional if each.default is not empty),
        takes_any_number=any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters),
        required_keywords=tuple(
            each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY and each.default is empty
        ),
    )


def _refuse_uncallable(function: Any, step: str) -> None:
    if inspect.iscoroutine(function):
        function.close()
        raise UsageError(f"{step}: given a coroutine; give the function itself, without calling it")
    if not callable(function):
        raise UsageError(f"{step}: given {function!r}, which cannot be called; give a function")


def _bare(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _is(function: Any, question: Callable[[Any], bool]) -> bool:
    """Ask it of a function, and of what a callable object would call."""
    bare = _bare(function)
    if question(bare):
        return True
    if inspect.isroutine(bare) or inspect.isclass(bare):
        return False
    return question(type(bare).__call__)


def _awaiting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*arguments: Any) -> Any:
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result

    return call
