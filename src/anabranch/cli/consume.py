"""`anabranch consume`: print the records of topics; with a group, commit what was printed."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anabranch.cli.arguments import Parser, connection_of
from anabranch.cli.record_format import FORMAT_DEFAULT, LETTERS, as_json, compile_format
from anabranch.cli.terminal import Progress, note
from anabranch.core.errors import UsageError
from anabranch.kafka.start import Start, StartKind, parse_start

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from types import FrameType

    from anabranch.core.records import Record
    from anabranch.kafka.consumer import RecordReader

READ_RECORDS = 1000
READ_S = 0.2  # how long a stop signal may wait for an idle topic
COMMIT_S = 1.0

EXAMPLES = (
    "anabranch consume orders -e                     all records, then exit",
    "anabranch consume orders -o -5 -e -f '%p/%o %k: %s\\n'",
    "anabranch consume orders -o @2031-05-04T12:00:00Z --json -c 10",
    "anabranch consume orders -g audit               goes on where group audit was",
)


def run(words: list[str]) -> int:
    """Print records until the count, the end or a signal; a stop by signal is a clean one."""
    typed = _parser().read(words)
    start = _start(typed)
    render = as_json if typed.json else compile_format(typed.format, null=b"NULL" if typed.null else b"")

    from anabranch.kafka.consumer import RecordReader

    reader = RecordReader(connection_of(typed), start, typed.group, until_end=typed.exit_at_end)
    progress = Progress("read", shown=sys.stderr.isatty() and not sys.stdout.isatty())
    printer = Printer(reader, render, progress, count_max=typed.count, unbuffered=typed.unbuffered)
    try:
        with stop_signals() as stopped:
            reader.open(typed.topics, typed.partition)
            while not stopped() and not printer.full and not reader.finished:
                printer.step()
    finally:
        progress.clear()
        reader.close()
        _tell(reader)
    return 0


class Printer:
    """Prints what the reader reads, and reports to it only what has left through stdout."""

    def __init__(
        self,
        reader: RecordReader,
        render: Callable[[Record], bytes],
        progress: Progress,
        *,
        count_max: int | None,
        unbuffered: bool,
    ) -> None:
        """Print nothing yet."""
        self._reader = reader
        self._render = render
        self._progress = progress
        self._left = count_max
        self._unbuffered = unbuffered
        self._commit_at = time.monotonic() + COMMIT_S

    @property
    def full(self) -> bool:
        """Tell whether as many were printed as were wanted."""
        return self._left == 0

    def step(self) -> None:
        """Read and print one lot, waiting a moment for it, and commit when it is time."""
        count = READ_RECORDS if self._left is None else min(READ_RECORDS, self._left)
        records = self._reader.read(count, READ_S)
        _tell(self._reader)
        if records:
            self._print(records)
            self._left = None if self._left is None else self._left - len(records)
        if time.monotonic() >= self._commit_at:
            self._reader.commit()
            self._commit_at = time.monotonic() + COMMIT_S

    def _print(self, records: list[Record]) -> None:
        out = sys.stdout.buffer
        size_bytes = 0
        for record in records:
            size_bytes += out.write(self._render(record))
            if self._unbuffered:
                out.flush()
                self._reader.settle([record])
        out.flush()
        self._reader.settle(records)
        self._progress.add(len(records), size_bytes)


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Answer whether a stop was asked for; the first signal asks, a second one forces."""
    asked: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(reader: RecordReader) -> None:
    while reader.notices:
        note(reader.notices.pop(0))


def _start(typed: argparse.Namespace) -> Start:
    if typed.group is not None and typed.partition:
        raise UsageError("-g and -p exclude each other: in a group the members share the partitions out")
    if typed.count is not None and typed.count < 1:
        raise UsageError(f"--count: given {typed.count}, allowed is a whole number from 1")
    if typed.offset is not None:
        return parse_start(typed.offset)
    return Start(StartKind.BEGINNING if typed.group is None else StartKind.STORED)


def _parser() -> Parser:
    parser = Parser(
        "consume",
        "TOPIC... [OPTION]...",
        "Print the records of topics as they come, until Ctrl-C, the count (-c) or the\n"
        "end (-e). In a group (-g) it shares the partitions with the other members and\n"
        "commits what it printed.",
        EXAMPLES,
    )
    add = parser.add_argument
    add("topics", metavar="TOPIC", nargs="+", help="Topics to read.")
    add(
        "-o",
        "--offset",
        metavar="START",
        help="Where to begin in each partition: beginning, end, stored (what the group committed, else beginning), "
        "an offset, -N (the last N), @TIME (ms since 1970, or 2031-05-04T12:00:00Z). [beginning; with -g stored]",
    )
    add("-p", "--partition", metavar="N", type=int, action="append", default=[], help="Only this one; repeatable.")
    add("-c", "--count", metavar="N", type=int, help="Exit after so many records.")
    add("-e", "--exit-at-end", action="store_true", help="Exit when the end of every partition is reached.")
    add(
        "-f",
        "--format",
        metavar="FORMAT",
        default=FORMAT_DEFAULT,
        help=f"How to print a record: {LETTERS}; \\n \\t \\xHH as usual. [{FORMAT_DEFAULT}]".replace("%", "%%"),
    )
    add("--json", action="store_true", help="One JSON object a line, as `produce --json` reads it.")
    add("-Z", "--null", action="store_true", help="Print a null key or value as NULL. [as nothing]")
    add("-g", "--group", metavar="GROUP", help="Read as a member of this group.")
    add("-u", "--unbuffered", action="store_true", help="Write each record at once.")
    parser.add_client_options()
    return parser
