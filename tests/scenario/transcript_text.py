"""Transcripts as text: commands, a line of dashes, the answers; comments and empty lines stand between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def replay(text: str, run: Callable[[str], Sequence[str]]) -> str:
    """Run a transcript's commands and write it again with the answers that came."""
    out: list[str] = []
    is_answer = False
    for line in text.splitlines():
        if line == "----":
            is_answer = True
        elif not line or line.startswith("#"):
            is_answer = False
            out.extend([line] if line or out[-1:] != [""] else [])
        elif not is_answer:
            answers = run(line)
            out.extend([line, "----", *answers, ""] if answers else [line])
    return "\n".join(out).rstrip() + "\n"
