"""One partition as the broker serves it: its log, and who waits for it.

Two kinds of waiting, both on the high watermark: an acks=all answer waits until it passes the record's offset, a fetch
waits until it moves at all. Nobody waits on a timer here; the one who moves the high watermark calls `moved`.
"""

import asyncio
from collections import deque

from anabranch.broker.log.partition import PartitionLog
from anabranch.broker.wire.error_codes import ErrorCode


class Partition:
    """A log and its waiters."""

    __slots__ = ("_acks", "_fetches", "index", "log", "topic")

    def __init__(self, topic: str, index: int, log: PartitionLog) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self._acks: deque[tuple[int, asyncio.Future[ErrorCode]]] = deque()
        self._fetches: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        return (
            f"<Partition {self.topic}/{self.index} {self.log.log_start}..{self.log.high_watermark}..{self.log.log_end}>"
        )

    def durable(self, position: int) -> asyncio.Future[ErrorCode] | None:
        """Answer a future that ends when everything below `position` counts, or None if it does already."""
        if self.log.high_watermark >= position:
            return None
        future = asyncio.get_running_loop().create_future()
        self._acks.append((position, future))
        return future

    def watch(self, fetch: asyncio.Future[None]) -> None:
        """Have `fetch` ended at the next move of the high watermark."""
        self._fetches.add(fetch)

    def unwatch(self, fetch: asyncio.Future[None]) -> None:
        """Take back a watch."""
        self._fetches.discard(fetch)

    def moved(self) -> None:
        """Wake all whose condition holds now.

        Positions are asked for in log order, so the first that waits ends it. A repeated batch may ask for an older
        one and then waits with those before it: later than it could be, never too early.
        """
        high_watermark = self.log.high_watermark
        while self._acks and self._acks[0][0] <= high_watermark:
            _end(self._acks.popleft()[1], ErrorCode.NONE)
        self._wake_fetches()

    def failed(self, code: ErrorCode) -> None:
        """Answer all who wait that it will not happen."""
        while self._acks:
            _end(self._acks.popleft()[1], code)
        self._wake_fetches()

    def _wake_fetches(self) -> None:
        while self._fetches:
            fetch = self._fetches.pop()
            if not fetch.done():
                fetch.set_result(None)


def _end(future: asyncio.Future[ErrorCode], code: ErrorCode) -> None:
    if not future.done():
        future.set_result(code)
