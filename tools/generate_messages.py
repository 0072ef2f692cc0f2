"""Write the message files of the wire codec: one per API, from kio's classes and the table of older versions below.

kio has one set of classes per API and version. Here the versions become one dataclass per struct, whose fields say in
which versions they are. kio lacks versions that Kafka 4 removed and that clients still ask for; `OLDER` and `ADDED`
hold what the protocol's history says about them.

    python tools/generate_messages.py            write the files
    python tools/generate_messages.py --check    say whether the files are what this tool writes
"""

import importlib
import pkgutil
import sys
from dataclasses import MISSING, dataclass, fields, is_dataclass
from dataclasses import Field as DataclassField
from datetime import datetime, timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

TARGET = Path(__file__).resolve().parent.parent / "src/anabranch/broker/wire/messages"
LINE_LENGTH = 120
IMPLICIT: Any = object()
"""The default of a field for which the protocol names none: zero, empty or false."""

# The APIs that the broker speaks, with the highest version that it offers.
VERSION_MAX = {
    "produce": 12,
    "fetch": 17,
    "list_offsets": 10,
    "metadata": 13,
    "offset_commit": 9,
    "offset_fetch": 9,
    "find_coordinator": 5,
    "join_group": 9,
    "heartbeat": 4,
    "leave_group": 5,
    "sync_group": 5,
    "describe_groups": 5,
    "list_groups": 5,
    "api_versions": 4,
    "create_topics": 7,
    "delete_topics": 6,
    "delete_records": 2,
    "init_producer_id": 5,
    "offset_for_leader_epoch": 4,
    "describe_configs": 4,
    "create_partitions": 3,
}

# A field that kio's lowest version has is in all lower versions too, unless it is listed here with its first version.
OLDER = {
    "ProduceRequest.transactional_id": 3,
    "PartitionProduceResponse.log_append_time_ms": 2,
    "ProduceResponse.throttle_time_ms": 1,
    "FetchRequest.max_bytes": 3,
    "FetchRequest.isolation_level": 4,
    "FetchResponse.throttle_time_ms": 1,
    "PartitionData.last_stable_offset": 4,
    "PartitionData.aborted_transactions": 4,
    "ListOffsetsPartitionResponse.timestamp": 1,
    "ListOffsetsPartitionResponse.offset": 1,
    "OffsetCommitRequest.generation_id_or_member_epoch": 1,
    "OffsetCommitRequest.member_id": 1,
    "OffsetCommitRequest.retention_time_ms": 2,
    "CreateTopicsRequest.validate_only": 1,
    "CreatableTopicResult.error_message": 1,
    "CreateTopicsResponse.throttle_time_ms": 2,
    "DeleteTopicsResponse.throttle_time_ms": 1,
    "DescribeConfigsRequest.include_synonyms": 1,
    "DescribeConfigsResourceResult.config_source": 1,
    "DescribeConfigsResourceResult.synonyms": 1,
    "OffsetForLeaderPartition.current_leader_epoch": 2,
    "EpochEndOffset.leader_epoch": 1,
    "OffsetForLeaderEpochResponse.throttle_time_ms": 2,
}


@dataclass(slots=True)
class Column:
    """One field of one struct: what it is, and in which versions."""

    name: str
    of: str
    default: Any = IMPLICIT
    is_struct: bool = False
    is_array: bool = False
    tag: int | None = None
    versions: tuple[int, ...] = ()
    nullable: tuple[int, ...] = ()


@dataclass(slots=True)
class Table:
    """One struct over all its versions."""

    name: str
    columns: list[Column]
    versions: tuple[int, ...]


# Fields that only versions below kio's lowest have: the struct, the field that comes before it on the wire, the column.
ADDED = [
    ("ListOffsetsPartition", "timestamp", Column("max_num_offsets", "int32", 1, versions=(0,))),
    ("ListOffsetsPartitionResponse", "error_code", Column("old_style_offsets", "int64", is_array=True, versions=(0,))),
    ("OffsetCommitRequestPartition", "committed_offset", Column("commit_timestamp", "int64", -1, versions=(1,))),
    ("DescribeConfigsResourceResult", "read_only", Column("is_default", "bool", versions=(0,))),
]

KINDS = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
ANNOTATIONS = {"bool": "bool", "uuid": "bytes", "string": "str", "bytes": "bytes"}
IMPLICIT_DEFAULTS = {"bool": False, "string": "", "bytes": 'b""', "uuid": "NO_ID", "records": None}


def read_kio(api: str, side: str) -> tuple[int, int, list[Table]]:
    """Give the API key, the first flexible version, and the structs of one side of an API, root last."""
    package = importlib.import_module(f"kio.schema.{api}")
    versions = sorted(int(module.name[1:]) for module in pkgutil.iter_modules(package.__path__))
    roots = {v: _root(api, v, side) for v in versions if v <= VERSION_MAX[api]}
    structs: dict[str, dict[int, type]] = {}
    for version, root in roots.items():
        _collect(root, version, structs)
    flexible = min(v for v, root in roots.items() if root.__flexible__)
    newest = roots[max(roots)]
    tables = [_merge(name, by_version, min(roots)) for name, by_version in structs.items()]
    return int(newest.__api_key__), flexible, tables


def _root(api: str, version: int, side: str) -> Any:
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
    name = "".join(word.title() for word in api.split("_")) + side.title()
    return getattr(module, name)


def _collect(struct: type, version: int, structs: dict[str, dict[int, type]]) -> None:
    """Gather a struct and those within it, the inner ones first."""
    for field in fields(struct):
        inner = _core_type(field.type)
        if isinstance(inner, type) and is_dataclass(inner):
            _collect(inner, version, structs)
    structs.setdefault(struct.__name__, {})[version] = struct
    structs[struct.__name__] = structs.pop(struct.__name__)


def _core_type(annotation: Any) -> Any:
    """Strip `| None` and `tuple[..., ...]` from an annotation."""
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    return get_args(annotation)[0] if get_origin(annotation) is tuple else annotation


def _merge(name: str, by_version: dict[int, type], lowest: int) -> Table:
    """Make one table of the versions of a struct, and check that it says for each of them what kio says."""
    columns: dict[str, Column] = {}
    order: list[str] = []
    for version, struct in sorted(by_version.items()):
        previous = -1
        for field in fields(struct):
            column = _column(field)
            if column.name not in columns:
                columns[column.name] = column
                order.insert(previous + 1, column.name)
            _widen(columns[column.name], column, version)
            previous = order.index(column.name)
    for version, struct in by_version.items():
        here = [column for column in order if version in columns[column].versions]
        if here != [_column(field).name for field in fields(struct)]:
            raise SystemExit(f"{name} v{version}: no single order of fields fits all versions; merge it by hand")
    versions = tuple(sorted(by_version))
    if versions[0] == lowest:
        versions = (*range(lowest), *versions)
        for column in columns.values():
            _extend_down(name, column, lowest)
    ordered = [columns[column] for column in order]
    for struct_name, before, added in ADDED:
        if struct_name == name:
            ordered.insert([column.name for column in ordered].index(before) + 1, added)
    return Table(name, ordered, versions)


def _column(field: DataclassField[Any]) -> Column:
    """Translate one field of kio's."""
    inner = _core_type(field.type)
    kind = field.metadata.get("kafka_type", "")
    is_optional = isinstance(field.type, UnionType)
    is_array = any(get_origin(part) is tuple for part in (field.type, *get_args(field.type)))
    is_time = kind.startswith(("timedelta", "datetime"))
    is_struct = is_dataclass(inner)
    has_null = is_optional and kind not in {"uuid", "datetime_i64"}
    return Column(
        name=f"{field.name}_ms" if is_time else field.name,
        of=inner.__name__ if is_struct else KINDS.get(kind, kind),
        is_struct=is_struct,
        is_array=is_array,
        default=IMPLICIT if is_array or is_struct or kind == "uuid" else _default(field.default, kind),
        tag=field.metadata.get("tag"),
        nullable=(0,) if has_null else (),
    )


def _default(value: Any, kind: str) -> Any:
    if value is MISSING:
        return IMPLICIT
    if kind == "datetime_i64" and value is None:
        return -1
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        raise SystemExit("a default point in time: teach this tool what it means")
    return int(value) if isinstance(value, int) and kind != "bool" else value


def _widen(column: Column, found: Column, version: int) -> None:
    """Add a version to a column, and refuse one that differs in more than nullability."""
    same = (column.of, column.is_array, column.tag, column.default) == (
        found.of,
        found.is_array,
        found.tag,
        found.default,
    )
    if not same:
        raise SystemExit(f"{column.name}: version {version} has another type, tag or default; merge it by hand")
    is_nullable = bool(found.nullable)
    if not column.versions:
        column.nullable = ()
    column.versions += (version,)
    if is_nullable:
        column.nullable += (version,)


def _extend_down(struct: str, column: Column, lowest: int) -> None:
    """Carry a column of kio's lowest version down to the version that really began it."""
    first = OLDER.get(f"{struct}.{column.name}", 0)
    if column.versions[0] == lowest:
        older = tuple(range(first, lowest))
        column.versions = older + column.versions
        if column.nullable and column.nullable[0] == lowest:
            column.nullable = older + column.nullable


def render(api: str) -> str:
    """Give the text of one API's file."""
    sides = [(side, *read_kio(api, side)) for side in ("request", "response")]
    (_, key, flexible, _), _ = sides
    version_max = VERSION_MAX[api]
    blocks = []
    for side, _, _, tables in sides:
        for table in tables:
            is_root = table is tables[-1]
            wire = f'message(key={key}, versions="0-{version_max}", flexible="{flexible}+")' if is_root else ""
            blocks.append(_render_struct(table, side, wire, version_max))
    body = "\n\n\n".join(blocks)
    title = " ".join(api.split("_"))
    words = ["array", "message", "wire", "RecordsIn", "RecordsOut", "NO_ID"]
    names = sorted(["MessageWire", *(word for word in words if _uses(body, word))], key=_import_order)
    return (
        f'"""API {key}, {title}: versions 0 to {version_max}, flexible from {flexible}.\n\n'
        f'Written by tools/generate_messages.py; change it there.\n"""\n\n'
        "from dataclasses import dataclass, field\nfrom typing import ClassVar\n\n"
        f"from anabranch.broker.wire.schema import {', '.join(names)}\n\n\n"
        f"{body}\n"
    )


def _uses(body: str, word: str) -> bool:
    return any(form in body for form in ((f"{word}(",) if word.islower() else (f" {word} ", f"={word},")))


def _import_order(word: str) -> tuple[int, str]:
    """Sort as the formatter does: constants, classes, functions."""
    return (0 if word.isupper() else 1 if word[0].isupper() else 2, word)


def _render_struct(table: Table, side: str, wire: str, version_max: int) -> str:
    lines = ["@dataclass(slots=True, kw_only=True)", f"class {table.name}:"]
    if wire:
        lines += [f"    WIRE: ClassVar[MessageWire] = {wire}", ""]
    for column in table.columns:
        lines += _render_field(column, table, side, version_max)
    if not table.columns:
        lines.pop()
    return "\n".join(lines)


def _render_field(column: Column, table: Table, side: str, version_max: int) -> list[str]:
    arguments = [column.of if column.is_struct else f'"{column.of}"']
    if column.versions != table.versions:
        arguments.append(f'"{_range(column.versions, version_max)}"')
    if column.nullable and not (column.is_struct and not column.is_array):
        is_always = column.nullable == column.versions == table.versions
        arguments.append(f'nullable="{"0+" if is_always else _range(column.nullable, version_max)}"')
    if column.tag is not None:
        arguments.append(f"tag={column.tag}")
    wire = f"{'array' if column.is_array else 'wire'}({', '.join(arguments)})"
    default = "default_factory=list" if column.is_array else f"default={_default_text(column)}"
    head = f"    {column.name}: {_annotation(column, side)} = field("
    line = f"{head}{default}, metadata={wire})"
    return [line] if len(line) <= LINE_LENGTH else [head, f"        {default}, metadata={wire}", "    )"]


def _range(versions: tuple[int, ...], version_max: int) -> str:
    first, last = versions[0], versions[-1]
    if versions != tuple(range(first, last + 1)):
        raise SystemExit(f"versions {versions} are no range; merge it by hand")
    return f"{first}+" if last == version_max else f"{first}" if first == last else f"{first}-{last}"


def _annotation(column: Column, side: str) -> str:
    if column.of == "records":
        return "RecordsIn" if side == "request" else "RecordsOut"
    name = column.of if column.is_struct else ANNOTATIONS.get(column.of, "int")
    if column.is_array:
        name = f"list[{name}]"
    is_optional = bool(column.nullable) or (column.is_struct and not column.is_array)
    return f"{name} | None" if is_optional else name


def _default_text(column: Column) -> str:
    if column.is_struct:
        return "None"
    value = IMPLICIT_DEFAULTS.get(column.of, 0) if column.default is IMPLICIT else column.default
    return '""' if value == "" else str(value)


def main() -> int:
    """Write the files, or compare them."""
    texts = {TARGET / f"{api}.py": render(api) for api in VERSION_MAX}
    if "--check" in sys.argv[1:]:
        stale = [path.name for path, text in texts.items() if not path.exists() or path.read_text() != text]
        print(f"stale: {', '.join(stale)}; run tools/generate_messages.py" if stale else "messages are up to date")
        return 1 if stale else 0
    for path, text in texts.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
