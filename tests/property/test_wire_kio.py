"""The codec against kio, an independent implementation, in every version that kio has."""

import datetime as dt
import importlib
import io
import re
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given, settings
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from wire_messages import MESSAGES, as_version, structs

from anabranch.broker.wire.codec import decode, encode_bytes
from anabranch.broker.wire.schema import NO_ID


def kio_class(cls: type, version: int) -> Any:
    """kio's class for a message of ours, or None where kio lacks the version."""
    words = re.findall("[A-Z][a-z]+", cls.__name__)
    api, side = "_".join(words[:-1]).lower(), words[-1].lower()
    try:
        module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
    except ModuleNotFoundError:
        return None
    return getattr(module, cls.__name__)


def to_kio(cls: type, ours: Any) -> Any:
    """The same values as an entity of kio's."""
    return cls(**{field.name: _field_to_kio(field, ours) for field in fields(cls)})


def _field_to_kio(field: Any, ours: Any) -> Any:
    kind = field.metadata.get("kafka_type", "")
    value = getattr(ours, f"{field.name}_ms" if kind.startswith(("timedelta", "datetime")) else field.name)
    if kind.startswith("timedelta"):
        return dt.timedelta(milliseconds=value)
    if kind == "datetime_i64":
        return None if value == -1 else dt.datetime.fromtimestamp(value // 1000, tz=dt.UTC)
    if kind == "error_code":
        return ErrorCode(value)
    if kind == "uuid":
        return None if value == NO_ID else UUID(bytes=value)
    inner = _entity(field.type)
    if isinstance(value, list):
        return tuple(to_kio(inner, entry) if inner else entry for entry in value)
    if inner and not get_origin(field.type):
        return to_kio(inner, value) if value is not None else _tagged_default(field, inner)
    return value


def _entity(annotation: Any) -> Any:
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    inner = get_args(annotation)[0] if get_origin(annotation) is tuple else annotation
    return inner if is_dataclass(inner) else None


def _tagged_default(field: Any, inner: Any) -> Any:
    if isinstance(field.type, UnionType):
        return None
    return field.default if field.default is not MISSING else inner()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(cls: type[Any]) -> None:
    """For any message and every version of kio's: our bytes mean the same to kio, and kio's bytes the same to us."""
    versions = [(v, kio) for v in range(cls.WIRE.versions.last + 1) if (kio := kio_class(cls, v))]
    assert versions

    @given(structs(cls))
    @settings(max_examples=40)
    def agree(message: Any) -> None:
        for version, kio in versions:
            ours = as_version(message, version)
            theirs = to_kio(kio, ours)
            written = encode_bytes(ours, version)
            read, size = entity_reader(kio)(written, 0)
            assert read == theirs
            assert size == len(written)
            buffer = io.BytesIO()
            entity_writer(kio)(buffer, theirs)
            assert decode(cls, version, memoryview(buffer.getvalue())) == ours

    agree()


def test_kio_and_we_agree_on_which_versions_are_flexible() -> None:
    """Flexible versions are the same on both sides, and kio has every one of them: the comparison has teeth."""
    for cls in MESSAGES:
        for version in range(cls.WIRE.versions.last + 1):
            theirs = kio_class(cls, version)
            is_flexible = version in cls.WIRE.flexible
            assert theirs or not is_flexible
            assert theirs is None or theirs.__flexible__ == is_flexible
