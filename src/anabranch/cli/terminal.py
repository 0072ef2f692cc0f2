"""What people see: aligned tables, notes and questions on stderr, and progress that stays out of pipes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRESS_S = 0.2  # between two drawings: the eye needs no more


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the rows under their column names, columns aligned, numbers to the right."""
    cells = [columns, *rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    numeric = [_is_numeric([row[index] for row in rows]) for index in range(len(columns))]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines) + "\n"


def note(text: str) -> None:
    """Tell something on stderr that is no error."""
    sys.stderr.write(f"anabranch: {text}\n")


def ask(question: str) -> bool:
    """Ask on the terminal; only yes is yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def plural(count: int, noun: str) -> str:
    """Return `1 record`, `2,000 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def byte_text(count: float) -> str:
    """Return a size as people say it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class Progress:
    """A line on a terminal's stderr that is redrawn while long work goes on."""

    def __init__(self, verb: str, *, shown: bool) -> None:
        """Draw nothing yet; never anything unless it is to be shown."""
        self._verb = verb
        self._shown = shown
        self._records = 0
        self._bytes = 0
        self._begun_at = self._drawn_at = time.monotonic()
        self._drawn = False

    def add(self, records: int, size_bytes: int) -> None:
        """Count, and redraw when it is time."""
        if not self._shown:
            return
        self._records += records
        self._bytes += size_bytes
        now = time.monotonic()
        if now - self._drawn_at >= PROGRESS_S:
            rate = self._records / (now - self._begun_at)
            text = f"{self._verb} {plural(self._records, 'record')}, {byte_text(self._bytes)}, {rate:,.0f}/s"
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()
            self._drawn_at, self._drawn = now, True

    def clear(self) -> None:
        """Take the line away, so that what follows stands alone."""
        if self._drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._drawn = False


def _is_numeric(cells: Sequence[str]) -> bool:
    """Tell whether a column holds numbers, some of them perhaps unknown (-)."""
    return any(cell.isdigit() for cell in cells) and all(cell == "-" or cell.isdigit() for cell in cells)
