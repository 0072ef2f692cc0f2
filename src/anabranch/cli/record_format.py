r"""How `consume` prints a record: kcat's format letters, or one JSON object a line.

A format is compiled once into a list of functions, record to bytes. Bytes are printed as they are; only JSON, which
knows text alone, needs a rule: what is UTF-8 is a string, what is not is `{"base64": "..."}`, and `produce --json`
reads both back, so that `consume --json | produce --json` copies records exactly.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.core.records import Record

    Piece = Callable[[Record], bytes]

FORMAT_DEFAULT = r"%s\n"
LETTERS = "%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T timestamp in ms, %K key length, \
%S value length, %R value length as 4 bytes, %% a percent sign"
_HEX = re.compile(r"\\x[0-9a-fA-F]{2}")
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def compile_format(text: str, *, null: bytes = b"") -> Callable[[Record], bytes]:
    """Return the function that prints a record in a format; `null` is what stands for a null key or value."""
    pieces: list[Piece] = []
    letters = _letters(null)
    rest = text
    while rest:
        if rest[0] == "%":
            if rest[1:2] not in letters:
                raise UsageError(f"format {text!r}: unknown {rest[:2]!r}; known are {LETTERS}")
            pieces.append(letters[rest[1]])
            rest = rest[2:]
        elif rest[0] == "\\":
            data, rest = _escaped(rest, text)
            pieces.append(_constant(data))
        else:
            end = min((index for index in (rest.find("%"), rest.find("\\")) if index > 0), default=len(rest))
            pieces.append(_constant(rest[:end].encode()))
            rest = rest[end:]
    return lambda record: b"".join([piece(record) for piece in pieces])


def unescaped(text: str) -> bytes:
    r"""Return the bytes of a text with \n, \t, \xHH and the like, as a delimiter may have."""
    data, rest = b"", text
    while rest:
        if rest[0] == "\\":
            piece, rest = _escaped(rest, text)
        else:
            piece, rest = rest[0].encode(), rest[1:]
        data += piece
    return data


def as_json(record: Record) -> bytes:
    """Return a record as one line of JSON."""
    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp_ms < 0 else record.timestamp_ms,
        "key": text_or_base64(record.key),
        "value": text_or_base64(record.value),
        "headers": [[name, text_or_base64(value)] for name, value in record.headers],
    }
    return json.dumps(shown, ensure_ascii=False).encode() + b"\n"


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as JSON can hold them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _letters(null: bytes) -> dict[str, Piece]:
    return {
        "%": _constant(b"%"),
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: null if record.key is None else record.key,
        "s": lambda record: null if record.value is None else record.value,
        "h": _headers,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "K": lambda record: b"%d" % _length(record.key),
        "S": lambda record: b"%d" % _length(record.value),
        "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    }


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


def _constant(data: bytes) -> Piece:
    return lambda _record: data


def _escaped(rest: str, whole: str) -> tuple[bytes, str]:
    """Return the bytes that the escape at the start of `rest` means, and what follows it."""
    letter = rest[1:2]
    if letter in _ESCAPES:
        return _ESCAPES[letter], rest[2:]
    if _HEX.match(rest) is None:
        raise UsageError(f"{whole!r}: unknown escape {rest[:2]!r}; known are \\n \\r \\t \\0 \\\\ \\xHH")
    return bytes.fromhex(rest[2:4]), rest[4:]
