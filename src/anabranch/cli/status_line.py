"""How a run shows itself: one line redrawn on a terminal, or now and then a line of its own.

`LiveLine` is the last line of a terminal. What the user's handlers and our loggers print meanwhile goes above it: while
it is shown, stdout and stderr pass through it (`Above`), else a print would end up in the middle of the line. A burst
of prints takes the line away and draws it once, when it is over: a handler that prints stays about as fast as without.

`PlainLines` is for pipes, files and service logs: a line when something about the run changed, else every ten seconds,
and none at all while a run is idle.
"""

from __future__ import annotations

import io
import shutil
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

DRAW_S = 0.25  # four times a second: more cannot be read
BURST_S = 0.05  # after a print the line comes back at once, but not for each print of a burst
PLAIN_S = 10.0
PLAIN_CHANGE_S = 1.0  # a run that changes all the time still writes a line a second at most


class Display(Protocol):
    """Shows the state of a run."""

    interval_s: float
    """How often it wants to be told."""

    def show(self, text: str, signature: object, now: float, /) -> None:
        """Show the state; `signature` is what about it is worth a line of its own when it changes."""
        ...

    def tell(self, text: str) -> None:
        """Say something once, on a line that stays."""
        ...

    def end(self) -> None:
        """Take away what would be in the way of what follows."""
        ...


class LiveLine:
    """The last line of a terminal, redrawn in place. Safe to use from several threads."""

    interval_s = DRAW_S

    def __init__(self, stream: TextIO) -> None:
        """Draw nothing yet."""
        self._stream = stream
        self._lock = threading.RLock()
        self._text = ""
        self._drawn = False
        self._drawn_at = float("-inf")
        self._at_line_start = True

    def show(self, text: str, _signature: object, now: float, /) -> None:
        """Redraw, at most four times a second."""
        with self._lock:
            self._text = text
            if now - self._drawn_at >= DRAW_S:
                self._draw(now)

    def tell(self, text: str) -> None:
        """Print a line above."""
        self.print_above(self._stream, f"{text}\n")

    def end(self) -> None:
        """Take the line away for good."""
        with self._lock:
            self._erase()
            self._text = ""

    def print_above(self, stream: TextIO, text: str) -> int:
        """Write what somebody prints, and draw the line again below it once it stands on a line of its own."""
        with self._lock:
            self._erase()
            written = stream.write(text)
            if text:
                self._at_line_start = text.endswith("\n")
            now = time.monotonic()
            if now - self._drawn_at >= BURST_S:
                stream.flush()
                self._draw(now)
            return written

    @contextmanager
    def above(self) -> Iterator[None]:
        """Let everything that is printed to a terminal inside the block go above the line."""
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (self._wrapped(stream) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before

    def _wrapped(self, stream: TextIO) -> TextIO:
        return cast("TextIO", Above(self, stream)) if stream.isatty() else stream

    def _draw(self, now: float) -> None:
        if self._text and self._at_line_start:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\033[K{fitted(self._text, width)}")
            self._stream.flush()
            self._drawn, self._drawn_at = True, now

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write("\r\033[K")
            self._stream.flush()
            self._drawn = False


class Above(io.TextIOBase):
    """A terminal's stream whose lines go above the live line; all else about it is as it was."""

    def __init__(self, live: LiveLine, stream: TextIO) -> None:
        """Stand before a stream."""
        self._live = live
        self._stream = stream

    def write(self, text: str) -> int:
        """Print above the line."""
        return self._live.print_above(self._stream, text)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Tell that this is a terminal: only those are wrapped."""
        return True

    def fileno(self) -> int:
        """Return the stream's own."""
        return self._stream.fileno()

    @property
    def buffer(self) -> Any:
        """Return the stream's own: bytes written there do not go through us."""
        return self._stream.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has an attribute here, io a property
        """Return the stream's own."""
        return self._stream.encoding


class PlainLines:
    """Lines on a stream that is no terminal."""

    interval_s = PLAIN_CHANGE_S

    def __init__(self, stream: TextIO) -> None:
        """Write nothing yet."""
        self._stream = stream
        self._signature: object = None
        self._text = ""
        self._written_at = float("-inf")

    def show(self, text: str, signature: object, now: float, /) -> None:
        """Write a line if there is news: at once when the signature changed, else every ten seconds."""
        due_s = PLAIN_CHANGE_S if signature != self._signature else PLAIN_S
        if now - self._written_at < due_s or text == self._text:
            return
        self._signature, self._text, self._written_at = signature, text, now
        self.tell(text)

    def tell(self, text: str) -> None:
        """Write a line."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        """Do nothing: every line is whole."""


def fitted(text: str, width: int) -> str:
    """Return the text cut to the width, with dots where something is missing."""
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."
