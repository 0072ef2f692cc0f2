"""The driver's side of the control channel: a listening socket, and one connection for each member that lives.

Everything happens on the loop of the run. Who connects has a few seconds to say a hello with the token; until then it
is held to little memory, and there may be only so many like it. After that a member's frames become calls of
`Listener`. The listener admits one connection to each place; that one's reports are answered at once, and that answer
is its lease. Whoever had the place before is told so and hung up on: two attempts never hold answers of one place.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.core.errors import PeerError, UsageError
from anabranch.spark.messages import (
    DRIVER_HEARS,
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    Answer,
    Ended,
    FrameReader,
    Hello,
    Refused,
    Report,
    frame,
)
from anabranch.spark.supervision import Term

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from anabranch.spark.messages import FromDriver, FromMember

LOGGER: Final = logging.getLogger("anabranch.spark.channel")
HELLO_S_MAX: Final = 5.0
STRANGERS_MAX: Final = 256
"""Connections that have not said hello: more are closed at once."""


class Listener(Protocol):
    """Who takes what members say. Called on the loop."""

    def on_hello(self, connection: MemberConnection, hello: Hello) -> None:
        """Take a member that connects: have the channel `admit` it, or refuse it with `send`."""

    def on_report(self, connection: MemberConnection, statistics: Mapping[str, Any] | None) -> None:
        """Take a sign of life. It is answered already, if its place is the member's."""

    def on_ended(self, connection: MemberConnection, ended: Ended) -> None:
        """Take how a member's run ended."""

    def on_gone(self, connection: MemberConnection) -> None:
        """Take notice that the connection of a member has broken or was closed."""


class MemberConnection(asyncio.Protocol):
    """One connection, of a stranger at first, of a member after its hello."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._reader = FrameReader(DRIVER_HEARS, bytes_max=HELLO_BYTES_MAX, first_line=True)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.index = -1
        self.term = Term(0, 0)
        self.is_known = False

    def send(self, message: FromDriver) -> None:
        """Send a message; to a connection that is closed, nothing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(message))

    def close(self) -> None:
        """Close when what was sent is on its way."""
        if self._transport is not None:
            self._transport.close()

    # ── what the loop calls ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give a stranger a while to say hello."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._channel.admits(self):
            transport.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(HELLO_S_MAX, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take frames; close what sends anything else."""
        try:
            for message in self._reader.feed(data):
                self._take(message)
        except PeerError as error:
            LOGGER.warning("a connection to the control channel is closed: %s", error)
            self.send(Refused(str(error)))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        del exc  # a broken connection and a closed one are the same here
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._channel.forget(self)

    def _take(self, message: FromMember) -> None:
        listener = self._channel.listener
        if isinstance(message, Hello):
            self._greet(message)
        elif not self.is_known:
            raise PeerError("something else than a hello came first")
        elif isinstance(message, Report):
            if self._channel.is_current(self):
                self.send(Answer(message.number))
            listener.on_report(self, message.statistics)
        else:
            listener.on_ended(self, message)

    def _greet(self, hello: Hello) -> None:
        if self.is_known:
            raise PeerError("a member says hello once")
        self._channel.check(hello)
        self.index, self.term, self.is_known = hello.index, Term(hello.job, hello.attempt), True
        self._reader.bytes_max = FRAME_BYTES_MAX
        if self._deadline is not None:
            self._deadline.cancel()
        self._channel.greeted(self)
        self._channel.listener.on_hello(self, hello)


class Channel:
    """The listening side. Lives on the loop."""

    def __init__(self, token: str, members: int, listener: Listener) -> None:
        """Take only who knows the token, as one of so many members."""
        self.listener = listener
        self._token = token.encode()
        self._members = members
        self._server: asyncio.Server | None = None
        self._strangers: set[MemberConnection] = set()
        self._greeted: set[MemberConnection] = set()
        """Connections of members, admitted or not."""
        self._current: dict[int, MemberConnection] = {}
        """The one that was admitted, by place."""

    async def open(self, host: str) -> int:
        """Listen on a free port of the address and return it; raise UsageError when that cannot be."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: MemberConnection(self), host, 0)
        except OSError as error:
            raise UsageError(
                f"the control channel cannot listen on {host}: {error}; "
                "set spark.driver.bindAddress to an address of this machine"
            ) from error
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def send(self, message: FromDriver) -> None:
        """Send a message to every member that is admitted."""
        for connection in self._current.values():
            connection.send(message)

    def admit(self, connection: MemberConnection) -> None:
        """Give a member its place. An older attempt that has it is told that it has lost it, and hung up on."""
        older = self._current.get(connection.index)
        self._current[connection.index] = connection
        if older is None or older is connection:
            return
        if older.term != connection.term:
            older.send(Refused("a newer attempt of this member has started"))
        older.close()

    def is_current(self, connection: MemberConnection) -> bool:
        """Tell whether a place is this connection's."""
        return self._current.get(connection.index) is connection

    def close(self) -> None:
        """Listen no more and close all connections; never blocks."""
        if self._server is not None:
            self._server.close()
        for connection in [*self._greeted, *self._strangers]:
            connection.close()

    # ── what connections call ──

    def admits(self, connection: MemberConnection) -> bool:
        """Take in a stranger, if there are not too many."""
        if len(self._strangers) >= STRANGERS_MAX:
            return False
        self._strangers.add(connection)
        return True

    def check(self, hello: Hello) -> None:
        """Raise PeerError for a hello of somebody who is no member of this run."""
        if not hmac.compare_digest(hello.token.encode(), self._token):
            raise PeerError("the token of this run was not given")
        if not 0 <= hello.index < self._members:
            raise PeerError(f"there is no member {hello.index} in this run of {self._members}")

    def greeted(self, connection: MemberConnection) -> None:
        """Count a connection as a member's from now on."""
        self._strangers.discard(connection)
        self._greeted.add(connection)

    def forget(self, connection: MemberConnection) -> None:
        """Tell of a member whose connection is gone, unless another has taken its place."""
        self._strangers.discard(connection)
        self._greeted.discard(connection)
        if self.is_current(connection):
            del self._current[connection.index]
            self.listener.on_gone(connection)
