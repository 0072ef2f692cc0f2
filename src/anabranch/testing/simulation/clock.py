"""Virtual time: a queue of actions that jumps from one to the next."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Action = Callable[[], None]


class Clock:
    """What happens when. Actions of the same time happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sequence = 0
        self._queue: list[tuple[float, int, Action]] = []

    def after(self, delay_s: float, action: Action) -> None:
        """Let something happen later, or next when the delay is 0."""
        self.at(self.now + delay_s, action)

    def at(self, time: float, action: Action) -> None:
        """Let something happen at a time, or next when it has passed."""
        self._sequence += 1
        heappush(self._queue, (max(time, self.now), self._sequence, action))

    def run(self, is_done: Callable[[], bool], time_max: float, actions_max: int) -> str:
        """Let things happen until all is done; answer why not, if it is not."""
        for _ in range(actions_max):
            if is_done():
                return ""
            if not self._queue:
                return "nothing is left to happen"
            time, _, action = heappop(self._queue)
            if time > time_max:
                return f"{time_max:g} s of virtual time have passed"
            self.now = time
            action()
        return f"{actions_max:,} actions have happened"
