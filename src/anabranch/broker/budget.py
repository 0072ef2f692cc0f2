"""How much memory all connections together may hold: what they are sending us, and what they have not read.

Receive buffers. A connection may always hold `SMALL_BUFFER_BYTES`. Beyond that it may grow while the *others* together
hold less than the budget: so one large request always gets through, and the sum stays below the budget plus one
request. Who may not grow starves: it is not read from until others give memory back. While anyone starves, a connection
gives its buffer back whenever it is empty, and those that sit on half a frame are cut, the longest without a whole
frame first: a client that works finishes frames.

Answers. What a client has not read is counted at every write. The fuller that budget, the smaller the answers to
fetches; at the bound each is a single batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.broker.connection import Connection

SMALL_BUFFER_BYTES: Final = 64 * 1024
STALLED_S: Final = 1.0
"""Without a whole frame for this long a connection that holds memory may be cut for one that starves."""
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of one answer, whatever the client allows: it is held in memory until the client has read it."""
UNSENT_BYTES_MAX: Final = 32 * 1024 * 1024


class Budget:
    """The bytes that connections hold, and who waits for them."""

    def __init__(self, buffers_bytes_max: int) -> None:
        self._buffers_bytes_max = buffers_bytes_max
        self._starved: dict[Connection, None] = {}
        self.buffer_bytes = 0
        self.unsent_bytes = 0

    @property
    def pressed(self) -> bool:
        """Whether somebody starves."""
        return bool(self._starved)

    @property
    def answer_bytes_max(self) -> int:
        """How large the next answer may be: a quarter of what is left, at most."""
        return max(0, min(ANSWER_BYTES_MAX, (UNSENT_BYTES_MAX - self.unsent_bytes) // 4))

    def may_grow(self, allocated: int) -> bool:
        """Answer whether a connection that holds `allocated` may receive more."""
        return allocated <= SMALL_BUFFER_BYTES or self.buffer_bytes - allocated <= self._buffers_bytes_max

    def starve(self, connection: Connection) -> None:
        """Remember who waits, in order."""
        self._starved[connection] = None

    def feed(self) -> None:
        """Let those go on who may; they queue again if they may not."""
        waiting, self._starved = self._starved, {}
        for connection in waiting:
            connection.feed()

    def to_cut(self, connections: set[Connection], now: float) -> list[Connection]:
        """Answer whom to cut so that the others find room: none unless somebody starves."""
        if not self._starved:
            return []
        holding = [each for each in connections if each.allocated > SMALL_BUFFER_BYTES]
        stalled = sorted(
            (each for each in holding if now - each.completed_at > STALLED_S), key=lambda each: each.completed_at
        )
        cut, held = [], self.buffer_bytes
        for each in stalled:
            if held <= self._buffers_bytes_max // 2:
                break
            cut.append(each)
            held -= each.allocated
        return cut
