"""Compiles the function that reads one message class in one version.

The function is straight-line code, the loops of nested arrays included: no call per struct or field. What a peer may do
to it is bounded like this:

- Every fixed-width run is read by `unpack_from`, every single byte by an index: both raise when the bytes end, and the
  caller turns that into a `WireError`. A position only grows, so no index is ever negative.
- A length is compared with what is left before anything is made of it. Compact lengths (KIP-482) are stored plus one,
  zero is null; one that needs more than a byte is read again, the slow way.
- An array count is compared with what is left divided by the least size of an entry, and the sum of all counts with
  `ENTRIES_MAX`, before its list exists.
- Depth is that of the schema: nothing here recurses at run time.

Rejected: a function per struct (a call and a tuple per entry), and constructors with keywords (twice the cost of
`object.__new__` and plain stores).
"""

from collections.abc import Callable
from struct import calcsize, unpack_from
from typing import Any

from anabranch.broker.wire.primitives import (
    ENTRIES_MAX,
    read_uvarint,
    refuse_count,
    refuse_length,
    refuse_tag,
    skip_tags,
)
from anabranch.broker.wire.schema import STRUCT_FORMATS, FieldPlan, plan_struct
from anabranch.broker.wire.source import Source, bytes_min
from anabranch.core.errors import InternalError

RUNTIME: dict[str, Any] = {
    "new": object.__new__,
    "read_uvarint": read_uvarint,
    "refuse_count": refuse_count,
    "refuse_length": refuse_length,
    "refuse_tag": refuse_tag,
    "skip_tags": skip_tags,
    "unpack_from": unpack_from,
}
CONVERSIONS = {"string": "str({}, 'utf-8')", "bytes": "bytes({})", "records": "{}"}


def compile_decoder(message: type, version: int, *, is_flexible: bool) -> Callable[[memoryview, int], Any]:
    """Give a function of data and position that reads the message; what follows it is not looked at."""
    source = Source(message.__name__, version, is_flexible=is_flexible, names=dict(RUNTIME))
    with source.block("def decode(data, position):"):
        source.line("size = len(data)")
        source.line("entries = 0")
        _read_struct(source, message, "message", message.__name__)
        source.line("return message")
    return source.build("decode")


def _read_struct(source: Source, struct: type, target: str, label: str) -> None:
    """Make an instance in `target` and read all its fields."""
    plan = plan_struct(struct, source.version)
    source.line(f"{target} = new({source.class_name(struct)})")
    for field in (*plan.absent, *plan.tagged):
        source.line(f"{target}.{field.name} = {field.default!r}")
    for field in plan.inline:
        _read_field(source, field, f"{target}.{field.name}", f"{label}.{field.name}")
    if source.is_flexible:
        _read_tags(source, plan.tagged, target, label)
    _flush(source)


def _read_field(source: Source, field: FieldPlan, target: str, label: str) -> None:
    if field.is_array:
        _read_array(source, field, target, label)
    elif isinstance(field.of, type):
        _flush(source)
        inner = source.fresh("struct")
        _read_struct(source, field.of, inner, label)
        source.line(f"{target} = {inner}")
    elif field.of in STRUCT_FORMATS:
        source.run.append((STRUCT_FORMATS[field.of], target))
    else:
        _read_sized(source, field, target, label)


def _flush(source: Source) -> None:
    """Write the run so far as one call."""
    run, source.run = source.run, []
    if not run:
        return
    if len(run) == 1 and run[0][0] == "B":
        source.line(f"{run[0][1]} = data[position]")
        source.line("position += 1")
        return
    formats = "".join(code for code, _ in run)
    targets = "".join(f"{target}, " for _, target in run).rstrip()
    source.line(f"{targets} = {source.struct_method(formats, 'unpack_from')}(data, position)")
    source.line(f"position += {calcsize('>' + formats)}")


def _read_length(source: Source, field: FieldPlan) -> str:
    """Read a length with the run before it, and give its variable: as stored, so null is 0 or -1."""
    length = source.fresh("length")
    source.run.append((source.length_format(field), length))
    _flush(source)
    if source.is_flexible:
        with source.block(f"if {length} > 127:"):
            source.line(f"{length}, position = read_uvarint(data, position - 1)")
        source.line(f"{length} -= 1")
    return length


def _refuse_or_null(source: Source, field: FieldPlan, target: str, label: str, length: str) -> None:
    if field.is_nullable:
        with source.block(f"elif {length} == -1:"):
            source.line(f"{target} = None")
    with source.block("else:"):
        source.line(f"refuse_length('{label}', {length}, size - position)")


def _read_sized(source: Source, field: FieldPlan, target: str, label: str) -> None:
    """Read a string, bytes or records."""
    length = _read_length(source, field)
    with source.block(f"if {length} >= 0:"):
        source.line(f"end = position + {length}")
        with source.block("if end > size:"):
            source.line(f"refuse_length('{label}', {length}, size - position)")
        source.line(f"{target} = {CONVERSIONS[str(field.of)].format('data[position:end]')}")
        source.line("position = end")
    _refuse_or_null(source, field, target, label, length)


def _read_array(source: Source, field: FieldPlan, target: str, label: str) -> None:
    count = _read_length(source, field)
    entry_bytes = bytes_min(field, source.version, is_flexible=source.is_flexible)
    with source.block(f"if {count} > 0:"):
        source.line(f"entries += {count}")
        with source.block(f"if {count} * {entry_bytes} > size - position or entries > {ENTRIES_MAX}:"):
            source.line(f"refuse_count('{label}', {count}, size - position)")
        if field.of in STRUCT_FORMATS:
            formats = STRUCT_FORMATS[str(field.of)]
            source.line(f"{target} = list(unpack_from(f'>{{{count}}}{formats}', data, position))")
            source.line(f"position += {count} * {entry_bytes}")
        else:
            _read_entries(source, field, target, label, count)
    with source.block(f"elif {count} == 0:"):
        source.line(f"{target} = []")
    _refuse_or_null(source, field, target, label, count)


def _read_entries(source: Source, field: FieldPlan, target: str, label: str, count: str) -> None:
    if field.of == "uuid":
        raise InternalError(f"{label}: arrays of ids are not supported by the codec; add them to decoder.py")
    entries, entry = source.fresh("entries"), source.fresh("entry")
    source.line(f"{target} = {entries} = []")
    with source.block(f"for _ in range({count}):"):
        if isinstance(field.of, type):
            _read_struct(source, field.of, entry, label)
        else:
            _read_sized(source, FieldPlan("", field.of, False, False, None, None), entry, label)
        source.line(f"{entries}.append({entry})")


def _read_tags(source: Source, tagged: tuple[FieldPlan, ...], target: str, label: str) -> None:
    """Read the tagged fields: usually one zero byte. The last of two equal tags wins, as in Kafka."""
    count = source.fresh("tags")
    source.run.append(("B", count))
    _flush(source)
    with source.block(f"if {count}:"):
        with source.block(f"if {count} > 127:"):
            source.line(f"{count}, position = read_uvarint(data, position - 1)")
        if not tagged:
            source.line(f"position = skip_tags(data, position, {count})")
            return
        tag, length, end = source.fresh("tag"), source.fresh("length"), source.fresh("end")
        with source.block(f"for _ in range({count}):"):
            source.line(f"{tag}, position = read_uvarint(data, position)")
            source.line(f"{length}, position = read_uvarint(data, position)")
            source.line(f"{end} = position + {length}")
            with source.block(f"if {end} > size:"):
                source.line(f"refuse_length('{label}', {length}, size - position)")
            for index, field in enumerate(tagged):
                with source.block(f"{'elif' if index else 'if'} {tag} == {field.tag}:"):
                    _read_field(source, field, f"{target}.{field.name}", f"{label}.{field.name}")
                    _flush(source)
                    with source.block(f"if position != {end}:"):
                        source.line(f"refuse_tag('{label}.{field.name}', {length})")
            with source.block("else:"):
                source.line(f"position = {end}")
