"""How records are printed and lines are read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.record_format import as_json, compile_format, unescaped
from anabranch.cli.record_lines import LineRule, parse_headers
from anabranch.core.errors import UsageError
from anabranch.core.records import Record
from anabranch.kafka.record import NewRecord
from anabranch.kafka.start import Start, StartKind, parse_start

RECORD = Record("orders", 3, 42, b"alice", b"hello", (("trace", b"7"), ("empty", None)), 1700000000123)
NULLS = Record("orders", 0, 0, None, None)

some_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
some_headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%s\n", b"hello\n"),
        (r"%t [%p] at %o: %k=%s", b"orders [3] at 42: alice=hello"),
        (r"%T\t%K\t%S\t%h", b"1700000000123\t5\t5\ttrace=7,empty=NULL"),
        (r"100%% \\ \x41\r", b"100% \\ A\r"),
        (r"%R%s", b"\x00\x00\x00\x05hello"),
        ("é%p", "é3".encode()),
        ("", b""),
    ],
)
def test_a_format_prints_the_parts_of_a_record(text: str, expected: bytes) -> None:
    """The letters are kcat's."""
    assert compile_format(text)(RECORD) == expected


def test_a_null_is_nothing_or_what_was_asked_for_and_has_length_minus_one() -> None:
    """Null and empty can be told apart by the length, or by -Z."""
    assert compile_format("%k|%s|%K|%S|%T|%h")(NULLS) == b"||-1|-1|-1|"
    assert compile_format("%k|%s", null=b"NULL")(NULLS) == b"NULL|NULL"
    assert compile_format("%R")(NULLS) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize("text", ["%", "%q", "abc%", "\\", "\\q", "\\x", "\\xzz", "\\x4"])
def test_an_unknown_letter_or_escape_is_refused_with_the_known_ones(text: str) -> None:
    """A format is checked before anything is read."""
    with pytest.raises(UsageError, match="known are"):
        compile_format(text)


@given(st.text())
def test_any_format_prints_or_is_refused(text: str) -> None:
    """Nothing but a usage error comes out of the compiler."""
    try:
        compile_format(text)(RECORD)
    except UsageError:
        return


def test_a_delimiter_may_be_escaped() -> None:
    """A tab cannot be typed easily in a shell."""
    assert unescaped(r"\t::\x00é") == b"\t::\x00" + "é".encode()


@given(
    st.builds(
        Record, st.just("t"), st.integers(0, 9), st.integers(0), some_bytes, some_bytes, timestamp_ms=st.integers(0)
    )
)
def test_json_is_one_line_that_produce_reads_back(record: Record) -> None:
    """`consume --json | produce --json` copies records exactly, whatever bytes they hold."""
    line = as_json(record)
    assert line.count(b"\n") == 1
    new = LineRule(as_json=True).record(line.removesuffix(b"\n"))
    assert new == NewRecord(record.key, record.value, record.headers, record.partition, record.timestamp_ms)


@given(some_headers)
def test_headers_keep_order_doubles_and_nulls_through_json(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    """Kafka's headers are a list, not a mapping."""
    line = as_json(RECORD._replace(headers=headers))
    assert LineRule(as_json=True).record(line).headers == headers


@pytest.mark.parametrize(
    ("rule", "line", "expected"),
    [
        (LineRule(), b"a:b", NewRecord(None, b"a:b")),
        (LineRule(key_delimiter=b":"), b"a:b:c", NewRecord(b"a", b"b:c")),
        (LineRule(key_delimiter=b":"), b":b", NewRecord(b"", b"b")),
        (LineRule(key_delimiter=b":", key=b"k"), b"b", NewRecord(b"k", b"b")),
        (LineRule(key=b"k", partition=2, headers=(("h", b"v"),)), b"v", NewRecord(b"k", b"v", (("h", b"v"),), 2)),
        (LineRule(), b"", NewRecord(None, b"")),
        (LineRule(empty_is_null=True, key_delimiter=b":"), b"a:", NewRecord(b"a", None)),
        (LineRule(), b"\xff\r", NewRecord(None, b"\xff\r")),
    ],
)
def test_a_line_is_a_key_and_a_value(rule: LineRule, line: bytes, expected: NewRecord) -> None:
    """The first delimiter splits; a line without one has the fixed key or none."""
    assert rule.record(line) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, NewRecord(b"fixed", None)),
        ({"key": None, "value": "v"}, NewRecord(None, b"v")),
        ({"value": {"base64": "/w=="}, "partition": 1}, NewRecord(b"fixed", b"\xff", (), 1)),
        ({"headers": {"a": "1", "b": None}}, NewRecord(b"fixed", None, (("a", b"1"), ("b", None)))),
        ({"timestamp": 5, "topic": "x", "offset": 9}, NewRecord(b"fixed", None, (), None, 5)),
    ],
)
def test_a_json_line_has_optional_fields(fields: dict[str, object], expected: NewRecord) -> None:
    """Absent is not null: an absent key is the one of -k, a null key is null."""
    assert LineRule(as_json=True, key=b"fixed").record(json.dumps(fields).encode()) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"valu": "x"}', "unknown field 'valu'; did you mean value"),
        (b'{"value": 1}', "value: allowed is a string"),
        (b'{"value": {"base64": "!"}}', "value: not base64"),
        (b'{"partition": "1"}', "partition: given '1'"),
        (b'{"partition": -1}', "partition: given -1"),
        (b'{"headers": "a=b"}', "headers: allowed is"),
        (b'{"headers": [["a"]]}', "is not a name and a value"),
    ],
)
def test_a_json_line_that_means_nothing_is_refused(line: bytes, message: str) -> None:
    """Nothing is guessed from a malformed line."""
    with pytest.raises(UsageError, match=message):
        LineRule(as_json=True).record(line)


def test_headers_are_typed_as_name_and_value() -> None:
    """A value may hold equal signs; without one the value is null."""
    assert parse_headers(["a=b=c", "d", "e="]) == (("a", b"b=c"), ("d", None), ("e", b""))
    with pytest.raises(UsageError, match="NAME=VALUE"):
        parse_headers(["=x"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Start(StartKind.BEGINNING)),
        ("end", Start(StartKind.END)),
        ("stored", Start(StartKind.STORED)),
        ("0", Start(StartKind.OFFSET, 0)),
        ("42", Start(StartKind.OFFSET, 42)),
        ("-5", Start(StartKind.LAST, 5)),
        ("@1700000000123", Start(StartKind.TIME, 1700000000123)),
        ("@1970-01-01T00:00:01Z", Start(StartKind.TIME, 1000)),
        ("@1970-01-01T00:00:01", Start(StartKind.TIME, 1000)),
        ("@1970-01-02", Start(StartKind.TIME, 86_400_000)),
        ("@1970-01-01T01:00:00+01:00", Start(StartKind.TIME, 0)),
    ],
)
def test_a_start_is_a_word_an_offset_a_tail_or_a_time(text: str, expected: Start) -> None:
    """The words are kcat's; a time without a zone is UTC."""
    assert parse_start(text) == expected


@pytest.mark.parametrize("text", ["", "start", "1.5", "--5", "@", "@noon", "99999999999999999999", "²"])
def test_what_is_no_start_is_refused_with_what_is(text: str) -> None:
    """The message lists the ways."""
    with pytest.raises(UsageError, match="allowed is"):
        parse_start(text)
