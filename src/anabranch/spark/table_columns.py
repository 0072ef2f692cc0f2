"""Which columns a table has had so far, and whether new ones fit beside them. Pure.

Files of a table may lack a column that others have: readers see null. They may not have one column in two types: then
nobody could read the table any more. So columns may come and go, and a change of type is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from pyspark.sql import types

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TableColumns:
    """What the files of a table have between them."""

    schema: types.StructType
    partition_by: tuple[str, ...]

    def stored(self) -> str:
        """Return it as text."""
        body = {"version": VERSION, "partition_by": list(self.partition_by), "schema": self.schema.jsonValue()}
        return json.dumps(body, indent=1)


def restored(text: str) -> TableColumns | None:
    """Read what `stored` gave; None for a text that is not whole or of another version: then the files are asked."""
    try:
        found = json.loads(text)
        if found["version"] != VERSION:
            return None
        return TableColumns(types.StructType.fromJson(found["schema"]), tuple(found["partition_by"]))
    except (ValueError, KeyError, TypeError):
        return None


def conflict(old: types.DataType, new: types.DataType, name: str = "") -> str | None:
    """Say which column would have two types; None when all fit."""
    if isinstance(old, types.StructType) and isinstance(new, types.StructType):
        fields = {field.name.lower(): field for field in old.fields}
        found = (
            conflict(fields[each.name.lower()].dataType, each.dataType, f"{name}.{each.name}" if name else each.name)
            for each in new.fields
            if each.name.lower() in fields
        )
        return next((each for each in found if each is not None), None)
    if isinstance(old, types.ArrayType) and isinstance(new, types.ArrayType):
        return conflict(old.elementType, new.elementType, f"{name}[]")
    if isinstance(old, types.MapType) and isinstance(new, types.MapType):
        return conflict(old.valueType, new.valueType, f"{name}[]")
    if type(old) is type(new) and old == new:
        return None
    return f"column {name} is {old.simpleString()} there and would be {new.simpleString()} now"


def joined(old: types.StructType, new: types.StructType) -> types.StructType:
    """Return the columns of both, the old ones first; they must not be in conflict."""
    fields = {field.name.lower(): field for field in old.fields}
    for field in new.fields:
        known = fields.get(field.name.lower())
        if known is None:
            fields[field.name.lower()] = field
        elif isinstance(known.dataType, types.StructType) and isinstance(field.dataType, types.StructType):
            fields[field.name.lower()] = types.StructField(known.name, joined(known.dataType, field.dataType))
    return types.StructType(list(fields.values()))
