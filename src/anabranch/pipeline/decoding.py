"""From a record's bytes to what a handler is given: compiled once per pipeline, then one call per record.

Whatever the bytes are, only a HandlerError comes out: a `DecodeError` (poison: the same bytes would fail again), or
what a user's own decode function raised on purpose (`Poison`, `RetryAfter`, `Fatal`).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.core.errors import DecodeError, HandlerError, UsageError
from anabranch.core.records import Record
from anabranch.pipeline.handlers import first_parameter, inspect_function, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Decode = Callable[[Record], Any]
NoneType = type(None)


def compile_decode(target: Any, function: Callable[..., Any] | None = None) -> tuple[Decode, str]:
    """Return a function from a record to its value, and what that value is called in `explain()`."""
    if function is not None:
        return _by_function(function), f"by {name_of(function)}"
    members = _members(target)
    label = " | ".join(spell(member) for member in members)
    nullable = NoneType in members
    proper = [member for member in members if member is not NoneType]
    if proper == [bytes]:
        return (_value if nullable else read_bytes), label
    read = _reader(target, proper, label)
    return (_nullable(read, label) if nullable else _required(read, label)), label


def is_bytes(target: Any) -> bool:
    """Say whether a type leaves the bytes as they are."""
    return [member for member in _members(target) if member is not NoneType] == [bytes]


def is_type(target: Any) -> bool:
    """Say whether something names a type; otherwise it is a function."""
    return isinstance(target, type) or not callable(target) or hasattr(target, "__origin__")


def spell(target: Any) -> str:
    """Return the name of a type as its reader wrote it."""
    if target is NoneType:
        return "None"
    if isinstance(target, type) and not typing.get_args(target):
        return target.__name__
    return str(target).replace("typing.", "")


def _members(target: Any) -> list[Any]:
    if target is None:
        raise UsageError("read: given None as the type; name one, or leave it out for bytes")
    if typing.get_origin(target) in {typing.Union, types.UnionType}:
        return list(typing.get_args(target))
    return [target]


def _reader(target: Any, proper: list[Any], label: str) -> Callable[[Any], Any]:
    if proper == [str]:
        return _text
    if len(proper) == 1 and hasattr(proper[0], "model_validate_json"):  # pydantic, which is never imported here
        validate: Callable[[Any], Any] = proper[0].model_validate_json
        return validate
    return _json(target, label)


def _json(target: Any, label: str) -> Callable[[Any], Any]:
    fix = "give a decode function instead: .read(…, decode=function)"
    try:
        for unknown in _unknown_types(msgspec.inspect.type_info(target)):
            raise UsageError(f"JSON cannot be decoded to {label}, because of {spell(unknown)}: {fix}")
        return msgspec.json.Decoder(target, dec_hook=_validated).decode
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise UsageError(f"JSON cannot be decoded to {label}: {error}; {fix}") from error


def _unknown_types(info: Any) -> Iterator[Any]:
    """Give the types, at any depth, that neither msgspec nor `_validated` can make."""
    waiting, seen = [info], {id(info)}  # types may contain themselves
    while waiting:
        node = waiting.pop()
        if isinstance(node, msgspec.inspect.CustomType) and not hasattr(node.cls, "model_validate"):
            yield node.cls
        for name in node.__struct_fields__:
            part = getattr(node, name)
            for each in part if isinstance(part, tuple) else (part,):
                if isinstance(each, (msgspec.inspect.Type, msgspec.inspect.Field)) and id(each) not in seen:
                    seen.add(id(each))
                    waiting.append(each)


def _validated(target: Any, value: Any) -> Any:
    """Decode what msgspec leaves to us: pydantic models inside other types."""
    return target.model_validate(value)


def undecodable(record: Record, value: Any) -> DecodeError:
    """Return the error for a value that is to be decoded and is not bytes."""
    return DecodeError(
        f"{_place(record)}: decode needs bytes, but what stands before it gave a value of type {type(value).__name__}"
    )


def _text(data: bytes) -> str:
    return data.decode()


def _value(record: Record) -> Any:
    return record.value


def read_bytes(record: Record) -> Any:
    """Return the value as it is; a null one is refused."""
    value = record.value
    if value is None:
        raise _refusal(record, "bytes", None)
    return value


def _required(read: Callable[[Any], Any], label: str) -> Decode:
    def decode(record: Record) -> Any:
        try:
            return read(record.value)
        except Exception as error:
            raise _refusal(record, label, error) from error

    return decode


def _nullable(read: Callable[[Any], Any], label: str) -> Decode:
    def decode(record: Record) -> Any:
        value = record.value
        if value is None:
            return None
        try:
            return read(value)
        except Exception as error:
            raise _refusal(record, label, error) from error

    return decode


def _by_function(function: Callable[..., Any]) -> Decode:
    name = name_of(function)
    inspect_function(function, "decode", "data")
    wants_record, takes_null = _takes(function)

    def decode(record: Record) -> Any:
        if record.value is None and not takes_null:
            raise DecodeError(
                f"{_place(record)} has a null value, which {name} does not take: "
                f"annotate its parameter as `bytes | None`, or as Record to be given the whole record"
            )
        try:
            return function(record if wants_record else record.value)
        except HandlerError:
            raise
        except Exception as error:
            raise DecodeError(f"{_place(record)} cannot be decoded by {name}: {_said(error)}") from error

    return decode


def _takes(function: Callable[..., Any]) -> tuple[bool, bool]:
    """Say whether a decode function takes the whole record rather than its bytes, and whether it takes a null value."""
    parameter = first_parameter(function)
    if parameter is None:
        return False, False
    annotation = parameter.annotation
    spelled = annotation if isinstance(annotation, str) else spell(annotation)
    wants_record = parameter.name == "record" or spelled.rpartition(".")[2] == "Record"
    return wants_record, wants_record or "None" in spelled or "Optional" in spelled


def _refusal(record: Record, label: str, cause: Exception | None) -> DecodeError:
    if record.value is None:
        return DecodeError(
            f"{_place(record)} has a null value, but the pipeline reads {label}: "
            f"read `{label} | None` to be given None for it"
        )
    said = "" if cause is None else f": {_said(cause)}"
    return DecodeError(f"{_place(record)} is not {label}{said}")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _place(record: Record) -> str:
    return f"{record.topic}/{record.partition}@{record.offset}"
