"""`anabranch produce`: lines from stdin or files to a topic, with an exact account at the end."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import Parser, connection_of
from anabranch.cli.record_format import unescaped
from anabranch.cli.record_lines import LineRule, parse_headers
from anabranch.cli.terminal import Progress, note, plural
from anabranch.core.errors import AnabranchError, UsageError
from anabranch.kafka.errors import UndeliveredError, UnreachableError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from anabranch.kafka.producer import RecordProducer, Statistics

POLL_RECORDS = 256  # between two looks at what became of earlier records
JOIN_S = 0.2  # in steps, so that Ctrl-C is heard
TIMEOUT_S = 30.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

EXAMPLES = (
    "echo hello | anabranch produce orders",
    "anabranch produce orders -K : < orders.txt           lines are key:value",
    "anabranch produce orders -k alice -H trace=7 a.txt   one key, one header",
    "anabranch consume orders -e --json | anabranch produce copy --json",
)


def run(words: list[str]) -> int:
    """Write lines to a topic; 0 only if every record was acknowledged."""
    typed = _parser().read(words)
    rule = _rule(typed)
    lines = _lines(typed.files)

    from anabranch.kafka.producer import RecordProducer

    producer = RecordProducer(connection_of(typed), typed.topic, codec=typed.codec, timeout_s=typed.timeout_s)
    if typed.partition is not None and typed.partition >= producer.partitions:
        raise UsageError(f"topic {typed.topic} has no partition {typed.partition}, only 0 to {producer.partitions - 1}")
    if sys.stdin.isatty() and set(typed.files) <= {"-"}:
        note("type one record a line; Ctrl-D ends")
    progress = Progress("sent", shown=sys.stderr.isatty() and not sys.stdin.isatty())
    interruption: BaseException | None = None
    try:
        _send(producer, lines, rule, progress)
    except (AnabranchError, KeyboardInterrupt) as error:
        interruption = error  # what was taken before is still delivered and accounted for
    _join(producer, typed.timeout_s)
    progress.clear()
    _report(producer.statistics(), typed.topic, quiet=typed.quiet)
    if interruption is not None:
        raise interruption
    return 0


def _send(producer: RecordProducer, lines: Iterable[tuple[str, bytes]], rule: LineRule, progress: Progress) -> None:
    for number, (where, line) in enumerate(lines, 1):
        try:
            record = rule.record(line)
        except UsageError as error:
            raise UsageError(f"{where}: {error}; nothing after it was sent") from error
        while not producer.submit(record):
            producer.poll(JOIN_S)
        progress.add(1, len(line))
        if number % POLL_RECORDS == 0:
            producer.poll()
            if producer.statistics().unreachable:
                raise UnreachableError(f"the broker went away; nothing after {where} was sent")


def _join(producer: RecordProducer, timeout_s: float) -> None:
    """Wait until the fate of every record is known: the library gives up on each after the time-out."""
    deadline = time.monotonic() + timeout_s + 5.0
    while not producer.join(JOIN_S) and time.monotonic() < deadline:
        pass


def _report(statistics: Statistics, topic: str, *, quiet: bool) -> None:
    if not statistics.undelivered:
        if not quiet:
            note(f"{plural(statistics.acknowledged, 'record')} acknowledged by {topic}")
        return
    reasons = [f"{reason} ({count:,})" for reason, count in statistics.failed.items()]
    unknown = statistics.undelivered - sum(statistics.failed.values())
    if unknown:
        reasons.append(f"no answer ({unknown:,})")
    text = (
        f"{statistics.undelivered:,} of {plural(statistics.submitted, 'record')} not acknowledged by {topic}: "
        f"{', '.join(reasons)}"
    )
    raise UnreachableError(text) if statistics.unreachable else UndeliveredError(text)


def _lines(files: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield each line without its end, with the words that name it in an error."""
    for name in files or ["-"]:
        if name != "-" and not Path(name).is_file():
            raise UsageError(f"no file {name}")
    return _lines_of(files or ["-"])


def _lines_of(files: list[str]) -> Iterator[tuple[str, bytes]]:
    for name in files:
        if name == "-":
            for number, line in enumerate(sys.stdin.buffer, 1):
                yield f"stdin line {number}", line.removesuffix(b"\n")
            continue
        with Path(name).open("rb") as stream:
            for number, line in enumerate(stream, 1):
                yield f"{name} line {number}", line.removesuffix(b"\n")


def _rule(typed: argparse.Namespace) -> LineRule:
    if typed.partition is not None and typed.partition < 0:
        raise UsageError(f"--partition: given {typed.partition}, allowed is a whole number from 0")
    if not 0.1 <= typed.timeout_s <= 86_400:
        raise UsageError(f"--timeout-s: given {typed.timeout_s:g}, allowed is a number from 0.1 to 86400")
    if typed.json and typed.key_delimiter is not None:
        raise UsageError("--json and -K exclude each other: the key stands in the object")
    if typed.key_delimiter == "":
        raise UsageError("-K: the delimiter is empty; give a text, as in -K : or -K '\\t'")
    return LineRule(
        as_json=typed.json,
        key_delimiter=None if typed.key_delimiter is None else unescaped(typed.key_delimiter),
        key=None if typed.key is None else typed.key.encode(),
        headers=parse_headers(typed.header),
        partition=typed.partition,
        empty_is_null=typed.null,
    )


def _parser() -> Parser:
    parser = Parser(
        "produce",
        "TOPIC [FILE]... [OPTION]...",
        "Write lines from stdin or files to a topic, one record a line. Records are\n"
        "sent idempotently with acks=all; if any is not acknowledged, the exit code says\n"
        "so and stderr how many and why.",
        EXAMPLES,
    )
    parser.add_argument("topic", metavar="TOPIC", help="Where to write; created on demand if the broker allows it.")
    parser.add_argument("files", metavar="FILE", nargs="*", help="Files to read; - is stdin. [stdin]")
    add = parser.add_argument
    add("-K", "--key-delimiter", metavar="DELIM", help=r"A line is key, DELIM, value; \t is a tab. [no keys]")
    add("-k", "--key", metavar="KEY", help="Key of every record that has no other.")
    add("-H", "--header", metavar="NAME=VALUE", action="append", default=[], help="A header; repeatable.")
    add("-p", "--partition", metavar="N", type=int, help="Partition to write to. [the key decides]")
    add("-z", "--codec", metavar="CODEC", default="none", choices=CODECS, help=f"{', '.join(CODECS)}. [none]")
    add("-Z", "--null", action="store_true", help="An empty value is null (a tombstone).")
    add(
        "--json",
        action="store_true",
        help='A line is {"key", "value", "headers", "partition", "timestamp"}, all optional; '
        '{"base64": "..."} stands for bytes that are not text.',
    )
    add("--timeout-s", metavar="SECONDS", type=float, default=TIMEOUT_S, help="Give up on a record after. [30]")
    add("-q", "--quiet", action="store_true", help="Say nothing when all went well.")
    parser.add_client_options()
    return parser
