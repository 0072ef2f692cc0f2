"""From the type of an output to the columns of a row.

What a handler returns is written as bytes, text or JSON. The type says which, and what the columns are: the fields of a
dataclass, a msgspec or pydantic model or a TypedDict become columns of the same names; anything else is one column,
`value`. What has no column type of its own (a union, a tuple, a named tuple, a type that contains itself) arrives as
its JSON text: such a column can still be read, and stays the same when the type grows.

Spark compares column names without regard to case, so do the checks here.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import inspect
from pyspark.sql import types

from anabranch.core.errors import UsageError
from anabranch.pipeline.decoding import spell
from anabranch.pipeline.output_type import proper_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ORIGIN: Final = ("topic", "partition", "offset", "key", "timestamp", "attempts", "handled_at", "error")
"""The columns of ours: where a row comes from, and what did not fit."""
ORIGIN_PREFIX: Final = "origin_"
"""Stands before a column of ours where the output has a field of that name."""
DECIMAL: Final = types.DecimalType(38, 18)
"""Twenty digits before the point and eighteen behind it."""

_FIXED: Final[dict[type, types.DataType]] = {
    inspect.BoolType: types.BooleanType(),
    inspect.IntType: types.LongType(),
    inspect.FloatType: types.DoubleType(),
    inspect.StrType: types.StringType(),
    inspect.BytesType: types.BinaryType(),
    inspect.ByteArrayType: types.BinaryType(),
    inspect.MemoryViewType: types.BinaryType(),
    inspect.DateTimeType: types.TimestampType(),
    inspect.DateType: types.DateType(),
    inspect.DecimalType: DECIMAL,
    inspect.UUIDType: types.StringType(),
    inspect.TimeType: types.StringType(),
    inspect.TimeDeltaType: types.StringType(),
}
_COLLECTIONS: Final = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType)
_RECORDS: Final = (inspect.DataclassType, inspect.StructType, inspect.TypedDictType)


class Kind(enum.Enum):
    """How the bytes of an output become columns."""

    FIELDS = "a JSON object, a column for each of its fields"
    JSON = "a JSON array or object, in one column"
    NUMBER = "one JSON number or boolean"
    TEXT = "text, or JSON as text"
    BYTES = "bytes as they are"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the columns of an output are."""

    kind: Kind
    type: types.DataType
    """Of the whole value: a StructType for FIELDS, else that of the column `value`."""
    label: str
    """What the value should have been, as `error` calls it."""

    @property
    def names(self) -> list[str]:
        """Return the names of its columns."""
        return list(self.type.names) if isinstance(self.type, types.StructType) else ["value"]


def shape_of(output: Any) -> Shape:
    """Return the columns for a type, a schema, or Any; raise UsageError for what cannot be written or told."""
    if isinstance(output, types.DataType):
        shape = _of_data_type(output)
    elif isinstance(output, str):
        shape = _of_data_type(_parsed(output))
    else:
        shape = _of_type(output)
    _refuse_twins(shape.names, shape.label)
    return shape


def origin_names(shape: Shape) -> dict[str, str]:
    """Return what the columns that are ours are called beside the output's own."""
    taken = {name.lower() for name in shape.names}
    return {name: f"{ORIGIN_PREFIX}{name}" if name in taken else name for name in ORIGIN}


def _of_data_type(given: types.DataType) -> Shape:
    label = given.simpleString()
    if isinstance(given, types.StructType):
        return Shape(Kind.FIELDS, given, label)
    if isinstance(given, types.BinaryType):
        return Shape(Kind.BYTES, given, label)
    if isinstance(given, types.StringType):
        return Shape(Kind.TEXT, given, label)
    is_json = isinstance(given, (types.ArrayType, types.MapType))
    return Shape(Kind.JSON if is_json else Kind.NUMBER, given, label)


def _parsed(text: str) -> types.DataType:
    """Read a schema as Spark writes it; needs a session."""
    from pyspark.errors import PySparkException

    try:
        return types.StructType.fromDDL(text)
    except PySparkException as error:
        raise UsageError(
            f"schema={text!r}: Spark does not understand it ({_first_line(error)}); "
            "give column names with types, as in 'id STRING, cents BIGINT'"
        ) from error


def _of_type(output: Any) -> Shape:
    if output in {Any, object}:
        return Shape(Kind.BYTES, types.BinaryType(), "bytes")
    members, label = proper_members(output), spell(output)
    if len(members) > 1:  # of several models, which msgspec does not tell apart
        return Shape(Kind.TEXT, types.StringType(), label)
    info = _info(members[0], label)
    if isinstance(info, (inspect.BytesType, inspect.ByteArrayType, inspect.MemoryViewType)):
        return Shape(Kind.BYTES, types.BinaryType(), label)
    column = _column(info, ())
    if isinstance(column, types.StructType):
        return Shape(Kind.FIELDS, column, label)
    if isinstance(column, (types.ArrayType, types.MapType)):
        return Shape(Kind.JSON, column, label)
    if isinstance(column, (types.LongType, types.DoubleType, types.BooleanType)):
        return Shape(Kind.NUMBER, column, label)
    return Shape(Kind.TEXT, types.StringType(), label)  # a date, a UUID and the like stand in quotes: JSON text


def _info(output: Any, label: str) -> inspect.Type:
    try:
        return inspect.type_info(output)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise UsageError(
            f"no columns can be made for {label}: {error}; give schema=… to the first DataFrame step"
        ) from error


def _column(info: inspect.Type | inspect.Metadata, inside: Sequence[Any]) -> types.DataType:
    """Return the column type for one type; text where there is none. `inside`: the models around it."""
    fixed = _FIXED.get(type(info))
    if fixed is not None:
        return fixed
    if isinstance(info, inspect.Metadata):
        return _column(info.type, inside)
    if isinstance(info, inspect.UnionType):
        return _union(info, inside)
    if isinstance(info, (inspect.EnumType, inspect.LiteralType)):
        values = [each.value for each in info.cls] if isinstance(info, inspect.EnumType) else info.values
        return types.LongType() if all(type(each) is int for each in values) else types.StringType()
    if isinstance(info, _COLLECTIONS):
        return types.ArrayType(_column(info.item_type, inside))
    if isinstance(info, inspect.DictType) and not isinstance(info.value_type, inspect.AnyType):
        return types.MapType(types.StringType(), _column(info.value_type, inside))
    return _record(info, inside) or types.StringType()


def _union(info: inspect.UnionType, inside: Sequence[Any]) -> types.DataType:
    members = [each for each in info.types if not isinstance(each, inspect.NoneType)]
    if len(members) == 1:
        return _column(members[0], inside)
    if all(isinstance(each, (inspect.IntType, inspect.FloatType)) for each in members):
        return types.DoubleType()
    return types.StringType()


def _record(info: Any, inside: Sequence[Any]) -> types.StructType | None:
    """Return the columns of a model; None for what is not written as a JSON object, or contains itself."""
    model = getattr(info, "cls", None)
    if model is None or model in inside or getattr(info, "array_like", False):
        return None
    if isinstance(info, _RECORDS):
        fields = [(field.encode_name, field.type) for field in info.fields]
        if isinstance(info, inspect.StructType) and info.tag is not None and info.tag_field is not None:
            fields.insert(0, (info.tag_field, inspect.type_info(type(info.tag))))
    elif isinstance(info, inspect.CustomType) and hasattr(model, "model_fields"):
        fields = [(name, _info(each, f"{model.__name__}.{name}")) for name, each in _pydantic(model)]
    else:
        return None
    columns = [types.StructField(name, _column(each, (*inside, model))) for name, each in fields]
    _refuse_twins([column.name for column in columns], model.__name__)
    return types.StructType(columns) if columns else None


def _pydantic(model: Any) -> Iterable[tuple[str, Any]]:
    """Give the names and types that `model_dump` writes; pydantic is never imported here."""
    by_alias = bool(model.model_config.get("serialize_by_alias"))
    for name, field in model.model_fields.items():
        if not field.exclude:
            alias = field.serialization_alias if by_alias else None
            yield alias or name, field.annotation
    for name, computed in model.model_computed_fields.items():
        yield name, computed.return_type


def _refuse_twins(names: Sequence[str], label: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if seen.setdefault(name.lower(), name) != name or names.count(name) > 1:
            raise UsageError(
                f"{label} has the columns {seen[name.lower()]!r} and {name!r}, which are one to Spark: rename one"
            )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
