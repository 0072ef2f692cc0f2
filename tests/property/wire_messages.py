"""Arbitrary messages made from the wire schema, for the tests that compare and break the codec."""

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from hypothesis import strategies as st

from anabranch.broker.wire.apis import API
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.schema import Message, Wire

MESSAGES: list[type[Message]] = [message for api in API.values() for message in (api.request, api.response)]
MESSAGE_VERSIONS = [(cls, v) for cls in MESSAGES for v in range(cls.WIRE.versions.last + 1)]

_INTEGERS = {
    kind: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for kind, bits in (("int8", 8), ("int16", 16), ("int32", 32), ("int64", 64))
}
_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    **_INTEGERS,
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
    # 126 to 128 bytes are where a compact length takes its second byte.
    "string": st.text(max_size=8) | st.integers(126, 300).map(lambda size: "s" * size),
    "bytes": st.binary(max_size=8) | st.integers(126, 300).map(bytes),
    "records": st.binary(max_size=8) | st.sampled_from([0, 127, 128, 4096, 4097, 20_000]).map(bytes),
}
_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    # kio knows only these codes, times in whole seconds, and durations that a timedelta can hold.
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "log_append_time_ms": st.just(-1) | st.integers(0, 10**9).map(lambda seconds: seconds * 1000),
    "retention_time_ms": st.integers(-(10**12), 10**12),
}


def structs(cls: type) -> st.SearchStrategy[Any]:
    """Any value of a struct: every field filled, whatever the version that will carry it."""
    return st.fixed_dictionaries({field.name: _field(field.name, field.metadata["wire"]) for field in fields(cls)}).map(
        lambda values: cls(**values)
    )


def _field(name: str, wire: Wire) -> st.SearchStrategy[Any]:
    value = structs(wire.of) if isinstance(wire.of, type) else _BY_NAME.get(name, _VALUES[wire.of])
    if wire.is_array:
        value = st.lists(value, max_size=3)
    is_optional = wire.nullable.last >= 0 or (wire.tag is not None and isinstance(wire.of, type) and not wire.is_array)
    return st.none() | value if is_optional else value


def as_version(message: Any, version: int) -> Any:
    """The message as it must come out of this version: what the version lacks or cannot say is the default."""
    cls = type(message)
    if not is_dataclass(cls):
        return message
    values = {}
    for field in fields(cls):
        wire: Wire = field.metadata["wire"]
        value = getattr(message, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        cannot_be_null = version not in wire.nullable and wire.tag is None
        if version not in wire.versions or (value is None and cannot_be_null):
            value = default
        elif isinstance(value, list):
            value = [as_version(entry, version) for entry in value]
        elif is_dataclass(value):
            value = as_version(value, version)
            if value == type(value)():
                value = None  # a tagged struct that says nothing is not sent
        values[field.name] = value
    return cls(**values)
