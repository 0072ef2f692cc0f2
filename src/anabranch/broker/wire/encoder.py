"""Compiles the function that writes one message class in one version.

The function appends parts to a list and joins them at the end, or when a large record payload comes by: that one
becomes a chunk of its own and is never copied. Runs of fixed-width values are packed by one call, together with the
length of what follows as long as that fits into one byte.

Tagged fields are written only when they differ from their default (KIP-482); each of them is built apart, because its
size comes first. They are rare, so the common case is one comparison each and one zero byte.
"""

from collections.abc import Callable
from struct import pack
from typing import Any

from anabranch.broker.wire.primitives import ONE_BYTE, put_records, records_bytes, uvarint
from anabranch.broker.wire.schema import STRUCT_FORMATS, FieldPlan, plan_struct
from anabranch.broker.wire.source import Source
from anabranch.core.errors import InternalError

RUNTIME: dict[str, Any] = {
    "join": b"".join,
    "one_byte": ONE_BYTE,
    "pack": pack,
    "put_records": put_records,
    "records_bytes": records_bytes,
    "uvarint": uvarint,
}


def compile_encoder(message: type, version: int, *, is_flexible: bool) -> Callable[[Any], list[bytes | memoryview]]:
    """Give a function that turns a message into chunks."""
    source = Source(message.__name__, version, is_flexible=is_flexible, names=dict(RUNTIME))
    with source.block("def encode(message):"):
        source.line("chunks = []")
        source.line("parts = []")
        source.line("put = parts.append")
        _write_struct(source, message, "message", "put")
        with source.block("if parts:"):
            source.line("chunks.append(join(parts))")
        source.line("return chunks")
    return source.build("encode")


def _write_struct(source: Source, struct: type, value: str, put: str) -> None:
    plan = plan_struct(struct, source.version)
    for field in plan.inline:
        _write_field(source, field, f"{value}.{field.name}", put)
    if source.is_flexible:
        _write_tags(source, plan.tagged, value, put)
    _flush(source, put)


def _write_field(source: Source, field: FieldPlan, value: str, put: str) -> None:
    if field.is_array:
        _write_array(source, field, value, put)
    elif isinstance(field.of, type):
        inner = source.fresh("struct")
        source.line(f"{inner} = {value}")
        _write_struct(source, field.of, inner, put)
    elif field.of in STRUCT_FORMATS:
        if field.of == "uuid":
            # The struct module would cut or pad it without a word.
            with source.block(f"if len({value}) != 16:"):
                source.line(f"raise ValueError('{field.name} must have 16 bytes')")
        source.run.append((STRUCT_FORMATS[field.of], value))
    else:
        _write_sized(source, field, value, put)


def _flush(source: Source, put: str) -> None:
    """Write the run so far as one call."""
    run, source.run = source.run, []
    if run:
        source.line(f"{put}({_packed(source, run)})")


def _packed(source: Source, run: list[tuple[str, str]]) -> str:
    values = ", ".join(value for code, value in run if code != "x")
    if not values:
        return repr(bytes(len(run)))
    return f"{source.struct_method(''.join(code for code, _ in run), 'pack')}({values})"


def _flush_with_length(source: Source, field: FieldPlan, length: str, put: str) -> None:
    """Write the run and a length behind it; `length` is a variable that holds it as it is stored."""
    if not source.is_flexible:
        source.run.append((source.length_format(field), length))
        _flush(source, put)
        return
    run, source.run = source.run, []
    with source.block(f"if {length} < 128:"):
        source.line(f"{put}({_packed(source, [*run, ('B', length)]) if run else f'one_byte[{length}]'})")
    with source.block("else:"):
        if run:
            source.line(f"{put}({_packed(source, run)})")
        source.line(f"{put}(uvarint({length}))")


def _measure(source: Source, field: FieldPlan, body: tuple[str, str], length: str, lines: list[str]) -> None:
    """Write the lines that set `length`, as it is stored; a null body becomes the empty one."""
    variable, empty = body
    if source.is_flexible:
        lines = [*lines[:-1], f"{lines[-1]} + 1"]
    if not field.is_nullable:
        for line in lines:
            source.line(line)
        return
    with source.block(f"if {variable} is None:"):
        source.line(f"{length} = {0 if source.is_flexible else -1}")
        source.line(f"{variable} = {empty}")
    with source.block("else:"):
        for line in lines:
            source.line(line)


def _write_sized(source: Source, field: FieldPlan, value: str, put: str) -> None:
    """Write a string, bytes or records."""
    body, length = source.fresh("body"), source.fresh("length")
    measured = f"records_bytes({body})" if field.of == "records" else f"len({body})"
    encoded = [f"{body} = {body}.encode()"] if field.of == "string" else []
    source.line(f"{body} = {value}")
    _measure(source, field, (body, "b''"), length, [*encoded, f"{length} = {measured}"])
    _flush_with_length(source, field, length, put)
    if field.of != "records":
        source.line(f"{put}({body})")
    elif put == "put":
        source.line(f"put_records(chunks, parts, {body})")
    else:
        raise InternalError(f"{field.name}: tagged records are not supported by the codec; add them to encoder.py")


def _write_array(source: Source, field: FieldPlan, value: str, put: str) -> None:
    entries, length = source.fresh("entries"), source.fresh("length")
    source.line(f"{entries} = {value}")
    _measure(source, field, (entries, "()"), length, [f"{length} = len({entries})"])
    _flush_with_length(source, field, length, put)
    if field.of in STRUCT_FORMATS:
        source.line(f"{put}(pack(f'>{{len({entries})}}{STRUCT_FORMATS[str(field.of)]}', *{entries}))")
        return
    entry = source.fresh("entry")
    with source.block(f"for {entry} in {entries}:"):
        if isinstance(field.of, type):
            _write_struct(source, field.of, entry, put)
        else:
            _write_sized(source, FieldPlan("", field.of, False, False, None, None), entry, put)


def _write_tags(source: Source, tagged: tuple[FieldPlan, ...], value: str, put: str) -> None:
    if not tagged:
        source.run.append(("x", ""))
        return
    _flush(source, put)
    tests = [_is_worth_writing(field, f"{value}.{field.name}") for field in tagged]
    tags = source.fresh("tags")
    with source.block(f"if {' or '.join(tests)}:"):
        source.line(f"{tags} = []")
        for field, test in zip(tagged, tests, strict=True):
            inner, body = source.fresh("inner"), source.fresh("body")
            with source.block(f"if {test}:"):
                source.line(f"{inner} = []")
                source.line(f"put_{inner} = {inner}.append")
                _write_field(source, field, f"{value}.{field.name}", f"put_{inner}")
                _flush(source, f"put_{inner}")
                source.line(f"{body} = join({inner})")
                source.line(f"{tags}.append(uvarint({field.tag}) + uvarint(len({body})) + {body})")
        source.line(f"{put}(uvarint(len({tags})))")
        source.line(f"{put}(join({tags}))")
    with source.block("else:"):
        source.line(f"{put}({bytes(1)!r})")


def _is_worth_writing(field: FieldPlan, value: str) -> str:
    """Give the test that a tagged field differs from its default."""
    if field.is_array and field.is_nullable:
        raise InternalError(f"{field.name}: tagged nullable arrays are not supported by the codec")
    if field.is_array:
        return value
    return f"{value} is not None" if field.default is None else f"{value} != {field.default!r}"
