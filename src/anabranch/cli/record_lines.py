"""How `produce` reads a line: key and value around a delimiter, or one JSON object."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.cli.config import suggestion
from anabranch.core.errors import UsageError
from anabranch.kafka.record import Headers, NewRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

_JSON_FIELDS = ("key", "value", "headers", "partition", "timestamp", "topic", "offset")  # the last two are not used


@dataclass(frozen=True, slots=True)
class LineRule:
    """What a line means; the same for all lines of a call."""

    as_json: bool = False
    key_delimiter: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    empty_is_null: bool = False

    def record(self, line: bytes) -> NewRecord:
        """Return the record that a line, without its end, means; raise UsageError if it means none."""
        return self._from_json(line) if self.as_json else self._from_text(line)

    def _from_text(self, line: bytes) -> NewRecord:
        key, value = self.key, line
        if self.key_delimiter is not None and self.key_delimiter in line:
            key, _delimiter, value = line.partition(self.key_delimiter)
        return NewRecord(key, self._value(value), self.headers, self.partition)

    def _from_json(self, line: bytes) -> NewRecord:
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise UsageError(f"not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise UsageError("not a JSON object with key, value, headers, partition, timestamp")
        for name in fields:
            if name not in _JSON_FIELDS:
                raise UsageError(f"unknown field {name!r}{suggestion(name, _JSON_FIELDS)}")
        key = _bytes(fields["key"], "key") if "key" in fields else self.key
        partition = _whole(fields.get("partition"), "partition")
        return NewRecord(
            key,
            self._value(_bytes(fields.get("value"), "value")),
            self.headers + _headers(fields.get("headers")),
            self.partition if partition is None else partition,
            _whole(fields.get("timestamp"), "timestamp"),
        )

    def _value(self, value: bytes | None) -> bytes | None:
        return None if self.empty_is_null and not value else value


def parse_headers(words: Iterable[str]) -> Headers:
    """Return the headers that `name=value` words mean; a word without `=` has a null value."""
    headers = []
    for word in words:
        name, equals, value = word.partition("=")
        if not name:
            raise UsageError(f"header {word!r}: allowed is NAME=VALUE")
        headers.append((name, value.encode() if equals else None))
    return tuple(headers)


def _bytes(value: Any, name: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise UsageError(f"{name}: not base64: {error}") from error
    raise UsageError(f'{name}: allowed is a string, null, or {{"base64": "..."}} for what is not text')


def _headers(value: Any) -> Headers:
    pairs = list(value.items()) if isinstance(value, dict) else [] if value is None else value
    if not isinstance(pairs, list):
        raise UsageError('headers: allowed is {"name": "value"} or [["name", "value"], ...]')
    headers = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UsageError(f"headers: {pair!r} is not a name and a value")
        headers.append((pair[0], _bytes(pair[1], f"header {pair[0]}")))
    return tuple(headers)


def _whole(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"{name}: given {value!r}, allowed is a whole number from 0")
    return value
