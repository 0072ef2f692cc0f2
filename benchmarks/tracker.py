"""How many completions a second the tracker takes, beside simpler structures on the same work.

Run `python benchmarks/tracker.py`. The patterns: *in order*; *random*, shuffled within what is in flight at once;
*blocked head*, all but the first record of a window, which comes last. Records come in batches and are settled in
batches, as the plane does it; the batch size 1 shows the cost of a single call. Ratios count, bare numbers follow the
machine; time is this process's own on the CPU. Speed is not all: the last line tells what a record costs in memory that
is settled behind a blocker, and only the tracker notices a record that is settled twice.
"""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, Protocol

from anabranch.control.tracker import Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RECORDS = 1_000_000
WINDOW = 10_000
BATCH = 500
RUNS = 3


class Progress(Protocol):
    """What is compared: offsets arrive, ordinals are settled, someone asks what may be committed."""

    @property
    def committable(self) -> int: ...
    def arrived(self, offsets: Sequence[int]) -> int: ...
    def settle(self, ordinal: int) -> None: ...
    def settle_many(self, ordinals: Sequence[int]) -> None: ...


class SetWithCursor:
    """Arrivals in a queue, completed ones in a set; the cursor walks up while the next arrival is in the set."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._arrivals: deque[int] = deque()
        self._done: set[int] = set()

    @property
    def committable(self) -> int:
        return self._arrivals[0] if self._arrivals else self._position

    def arrived(self, offsets: Sequence[int]) -> int:
        self._arrivals.extend(offsets)
        self._position = offsets[-1] + 1
        return offsets[0]

    def settle(self, ordinal: int) -> None:
        self._done.add(ordinal)
        self._advance()

    def settle_many(self, ordinals: Sequence[int]) -> None:
        self._done.update(ordinals)
        self._advance()

    def _advance(self) -> None:
        arrivals, done = self._arrivals, self._done
        while arrivals and arrivals[0] in done:
            done.remove(arrivals.popleft())


class SortedIncomplete:
    """Incomplete offsets in a sorted list, each removed where bisection finds it."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._incomplete: list[int] = []

    @property
    def committable(self) -> int:
        return self._incomplete[0] if self._incomplete else self._position

    def arrived(self, offsets: Sequence[int]) -> int:
        for offset in offsets:
            insort(self._incomplete, offset)
        self._position = offsets[-1] + 1
        return offsets[0]

    def settle(self, ordinal: int) -> None:
        del self._incomplete[bisect_left(self._incomplete, ordinal)]

    def settle_many(self, ordinals: Sequence[int]) -> None:
        for ordinal in ordinals:
            self.settle(ordinal)


def in_order(window: list[int]) -> list[int]:
    return window


def at_random(window: list[int]) -> list[int]:
    return random.Random(7).sample(window, len(window))


def blocked_head(window: list[int]) -> list[int]:
    return [*window[1:], window[0]]


def completions_per_second(
    make: Callable[[int], Progress], pattern: Callable[[list[int]], list[int]], size: int
) -> float:
    """Settle RECORDS in windows of WINDOW, `size` in a call; only the calls are in the time."""
    progress = make(0)
    elapsed = 0.0
    for start in range(0, RECORDS, WINDOW):
        window = list(range(start, start + WINDOW))
        order = pattern(window)
        arrivals = [window[at : at + BATCH] for at in range(0, WINDOW, BATCH)]
        batches = [order[at : at + size] for at in range(0, WINDOW, size)] if size > 1 else []
        begun = time.process_time()
        for offsets in arrivals:
            progress.arrived(offsets)
        if batches:
            for batch in batches:
                progress.settle_many(batch)
                assert progress.committable <= start + WINDOW
        else:
            settle = progress.settle
            for ordinal in order:
                settle(ordinal)
        elapsed += time.process_time() - begun
        assert progress.committable == start + WINDOW
    return RECORDS / elapsed


def bytes_ahead(make: Callable[[int], Progress], records: int = 100_000) -> float:
    """Say what a record costs in memory that is settled and held back by the first."""
    tracemalloc.start()
    progress = make(0)
    for start in range(0, records, BATCH):
        first = progress.arrived(range(start, start + BATCH))
        progress.settle_many([first + number for number in range(BATCH) if first + number > 0])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert progress.committable == 0
    return held / records


def settled_per_s() -> float:
    """Answer the tracker's rate on its slowest pattern, in batches, as the plane calls it."""
    patterns = (in_order, at_random, blocked_head)
    return min(max(completions_per_second(Tracker, each, BATCH) for _ in range(RUNS)) for each in patterns)


def main() -> None:
    """Print the table; fail below the target of 5 million a second."""
    makers: dict[str, Callable[[int], Progress]] = {
        "tracker": Tracker,
        "set with cursor": SetWithCursor,
        "sorted list": SortedIncomplete,
    }
    print(f"{'completions per second':<28}" + "".join(f"{name:>18}" for name in makers) + f"{'ratios':>16}")
    slowest = float("inf")
    for size in (BATCH, 1):
        for pattern in (in_order, at_random, blocked_head):
            rates = [max(completions_per_second(make, pattern, size) for _ in range(RUNS)) for make in makers.values()]
            name = f"{pattern.__name__.replace('_', ' ')}, {size} in a call"
            ratios = " ".join(f"{rates[0] / rate:5.1f}x" for rate in rates[1:])
            print(f"{name:<28}" + "".join(f"{rate / 1e6:>16.2f} M" for rate in rates) + f"{ratios:>16}")
            slowest = min(slowest, rates[0]) if size > 1 else slowest
    held = "".join(f"{bytes_ahead(make):>16.0f} B" for make in makers.values())
    print(f"{'memory per record ahead':<28}{held}")
    print(f"target: at least 5 M/s through the batch call; slowest {slowest / 1e6:.1f} M/s")
    sys.exit(slowest < 5e6)


if __name__ == "__main__":
    main()
