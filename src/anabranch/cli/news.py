"""What a run says once, on a line that stays: a breaker that opened or closed, a record that fails and fails.

The status line shows that something is wrong; who watches a log also wants to read which error it is, without a second
command. The sentences are the process's own (`why`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.cli.status import Status

STUCK_S = 5.0
"""A record that has failed for so long is told."""
STUCK_EVERY_S = 10.0
"""Not every one of a thousand keys that fail together."""


class News:
    """Finds what has not been told yet."""

    def __init__(self) -> None:
        """Begin with nothing told."""
        self._open: tuple[str, ...] = ()
        self._stuck: tuple[str, int] | None = None
        self._stuck_told_at = float("-inf")

    def of(self, status: Status, now: float) -> list[str]:
        """Return the lines to tell now."""
        return [f"{status.group}: {line}" for line in (*self._breakers(status), *self._blocker(status, now))]

    def _breakers(self, status: Status) -> list[str]:
        before, self._open = self._open, status.breakers_open
        opened = [
            _found(status, f"the breaker of step {step!r} ") or f"the breaker of step {step!r} is open"
            for step in status.breakers_open
            if step not in before
        ]
        closed = [f"the breaker of step {step!r} is closed again" for step in before if step not in self._open]
        return opened + closed

    def _blocker(self, status: Status, now: float) -> list[str]:
        held = status.blocker
        if held is None or held.blocker is None or held.blocker_age_s < STUCK_S or status.breakers_open:
            return []
        place = held.name, held.blocker
        if place == self._stuck or now - self._stuck_told_at < STUCK_EVERY_S:
            return []
        sentence = _found(status, f"{held.name} offset {held.blocker} ")
        if "last error" not in sentence:
            return []  # it only takes long
        self._stuck, self._stuck_told_at = place, now
        return [sentence]


def _found(status: Status, beginning: str) -> str:
    return next((sentence for sentence in status.why if sentence.startswith(beginning)), "")
