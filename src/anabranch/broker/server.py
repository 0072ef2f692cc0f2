"""Sockets to frames to the API: accepts connections, keeps their limits, and drives what happens by the clock."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from anabranch.broker.budget import Budget
from anabranch.broker.connection import Connection
from anabranch.core.errors import UsageError
from anabranch.core.options import BrokerOptions, parse_listen

if TYPE_CHECKING:
    from anabranch.broker.node import Node

logger = logging.getLogger("anabranch.broker.server")

TICK_S: Final = 1.0
RELAX_TICKS: Final = 2
"""After how many ticks without traffic a connection gives its buffer back."""
BACKLOG: Final = 1024


class Server:
    """Listens for one node."""

    def __init__(self, node: Node, options: BrokerOptions) -> None:
        self.node = node
        self.options = options
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._connections: set[Connection] = set()
        self.budget = Budget(options.buffers_bytes_max)
        node.answer_bytes_max = lambda: self.budget.answer_bytes_max
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._refused = 0
        self._feeding = False

    async def listen(self) -> tuple[str, int]:
        """Open the port and answer the address; port 0 picks one."""
        host, port = parse_listen(self.options.listen)
        try:
            self._listener = await self._loop.create_server(lambda: Connection(self), host, port, backlog=BACKLOG)
        except OSError as error:
            found = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise UsageError(f"{found}; choose another with --listen HOST:PORT (port 0 picks one)") from error
        bound = self._listener.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until told to stop: once a second look at limits, retention and idle connections."""
        while not stopping.is_set():
            try:
                await asyncio.wait_for(stopping.wait(), TICK_S)
            except TimeoutError:
                self._tick()

    async def close(self) -> None:
        """Take no more connections and end those there are."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort("the broker stops")
        if self._listener is not None:
            await self._listener.wait_closed()

    def _tick(self) -> None:
        now = self.now()
        for connection in list(self._connections):
            reason = connection.stalled(now, self.options.frame_s_max, self.options.idle_s_max)
            if reason is not None:
                connection.abort(reason)
            elif now - connection.progress_at > RELAX_TICKS * TICK_S:
                connection.relax()
        for connection in self.budget.to_cut(self._connections, now):
            connection.abort("half a frame held while others wait for memory")
        self.budget.feed()
        self.node.tick()

    # What connections ask.

    def admit(self, connection: Connection) -> bool:
        """Answer whether one more connection is taken."""
        if len(self._connections) >= self.options.connections_max:
            self._refused += 1
            if self._refused & (self._refused - 1) == 0:
                logger.warning(
                    "%d connections refused so far: raise --connections-max above %d",
                    self._refused,
                    self.options.connections_max,
                )
            return False
        self._connections.add(connection)
        return True

    def gone(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a request's task until it ends (the loop itself holds it only weakly)."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def memory_freed(self) -> None:
        """Let those who starve go on, soon: not from within the connection that gave its memory back."""
        if self.budget.pressed and not self._feeding:
            self._feeding = True
            self._loop.call_soon(self._feed)

    def _feed(self) -> None:
        self._feeding = False
        self.budget.feed()

    def statistics(self) -> dict[str, int]:
        """Answer what the server holds."""
        return {
            "connections": len(self._connections),
            "refused": self._refused,
            "buffer_bytes": self.budget.buffer_bytes,
            "unsent_bytes": self.budget.unsent_bytes,
            "requests_waiting": len(self._tasks),
        }
