"""One socket: bytes in, frames to the API, answers out in the order of their requests.

What must hold:

- Answers leave in request order, whatever order they become ready in. Each request has a place in a queue; places are
  written from the front as far as they are ready.
- Memory is bounded per connection. Frames are taken only while fewer than `in_flight_max` places wait, while the
  socket takes what we write, and while no request is under way that must be alone (any that waits, Produce excepted:
  producers count on pipelining, everybody else waits for the answer anyway). Otherwise reading stops: the rest stays
  in the client.
- A client that sends half a frame and falls silent, or never reads its answers, is cut by the server's clock
  (`stalled`), not by a timer per connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from anabranch.broker.api.dispatch import Waiting, answer
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.frames import FrameBuffer

if TYPE_CHECKING:
    from anabranch.broker.server import Server

logger = logging.getLogger("anabranch.broker.connection")

WRITE_BYTES_HIGH: Final = 64 * 1024
"""Above this many unsent bytes no further request of the connection is looked at."""

GATHER_BYTES_MAX: Final = 64 * 1024
"""How many bytes of answers are gathered for one write."""
READ_AHEAD_BYTES: Final = 16 * 1024
"""How much may be received, unlooked at, while a request is alone."""

Chunks = list[bytes | bytearray | memoryview]


class _Place:
    """A request's place in the queue of answers."""

    __slots__ = ("chunks", "ready", "task")

    def __init__(self) -> None:
        self.ready = False
        self.chunks: Chunks = []
        self.task: asyncio.Task[None] | None = None


class Connection(asyncio.BufferedProtocol):
    """A client's connection, from accept to close."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._inbox = FrameBuffer(server.options.request_bytes_max)
        self._places: deque[_Place] = deque()
        self._outgoing: Chunks = []
        self._transport: asyncio.Transport | None = None
        self._client_host = ""
        self._alone = False
        """Whether a request is under way that must be alone."""
        self._write_full = False
        self._reading = True
        self._pumping = False
        self._counted = 0
        self._unsent_counted = 0
        self._unsent_seen = 0
        self.completed_at = 0.0
        """When the last whole frame came in; 0 before the first."""
        self.progress_at = 0.0
        """When bytes last came in or went out."""

    # What the socket tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or refuse when there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        peer = transport.get_extra_info("peername")
        self._client_host = str(peer[0]) if isinstance(peer, tuple) else ""
        self.progress_at = self._server.now()
        if not self._server.admit(self):
            self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop what is under way for a client that is gone."""
        self._server.gone(self)
        self._transport = None
        for place in self._places:
            if place.task is not None:
                place.task.cancel()
        self._places.clear()
        self._inbox.drop()
        self._count()
        self._count_unsent()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Answer where the socket writes what it received."""
        room = self._inbox.writable()
        self._count()
        return room

    def buffer_updated(self, nbytes: int) -> None:
        """Look at what came."""
        self._inbox.filled(nbytes)
        self.progress_at = self._server.now()
        self._pump()

    def pause_writing(self) -> None:
        """The client does not read as fast as we answer."""
        self._write_full = True

    def resume_writing(self) -> None:
        """The client has read on."""
        self._write_full = False
        self._count_unsent()
        self._pump()

    # What the server's clock asks.

    def stalled(self, now: float, frame_s_max: float, idle_s_max: float) -> str | None:
        """Answer why this connection should be cut, if it should. Called about once a second."""
        transport = self._transport
        if transport is None:
            return None
        unsent = self._count_unsent()
        if unsent != self._unsent_seen:
            self._unsent_seen = unsent
            self.progress_at = now
        silent = now - self.progress_at
        if unsent and silent > frame_s_max:
            return f"{unsent} bytes of answers unread for {frame_s_max:g} s"
        if self._inbox.unread and not self._places and silent > frame_s_max:
            return f"half a frame and then nothing for {frame_s_max:g} s"
        if not self._places and silent > idle_s_max:
            return f"idle for {idle_s_max:g} s"
        return None

    def relax(self) -> None:
        """Give back the receive buffer if nothing is in it."""
        self._inbox.release()
        self._count()

    def close(self) -> None:
        """Close after what is written; take no more."""
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Cut the connection at once."""
        logger.info("connection of %s cut: %s", self._client_host, reason)
        if self._transport is not None:
            self._transport.abort()

    # Requests in, answers out.

    def _pump(self) -> None:
        """Take frames while there is room for their answers; stop reading while there is not."""
        if self._pumping or self._transport is None:
            return
        self._pumping = True
        try:
            while self._has_room():
                frame = self._inbox.next_frame()
                if frame is None:
                    break
                self._take(frame)
                self.completed_at = self.progress_at
        except WireError as error:
            self.abort(str(error))
            return
        except Exception as error:
            self._broken(error)
            return
        finally:
            self._pumping = False
            self._flush()
        if self._server.budget.pressed:
            self.relax()
        self._set_reading(self._may_read())

    def _has_room(self) -> bool:
        return not self._alone and not self._write_full and len(self._places) < self._server.options.in_flight_max

    def _may_read(self) -> bool:
        """While a request is alone a little is still received: it is how the end of the connection is noticed."""
        return self._has_room() or (self._alone and self._inbox.unread < READ_AHEAD_BYTES)

    def _take(self, frame: memoryview) -> None:
        result = answer(self._server.node, frame, self._client_host)
        if result is None:
            return
        place = _Place()
        self._places.append(place)
        if isinstance(result, Waiting):
            self._alone = not result.pipelined
            place.task = asyncio.get_running_loop().create_task(self._wait(place, result))
            self._server.keep(place.task)
        else:
            place.chunks, place.ready = result, True
            self._write_ready()

    async def _wait(self, place: _Place, waiting: Waiting) -> None:
        try:
            place.chunks = await waiting.answer
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._broken(error)
            return
        place.ready = True
        self._alone = self._alone and waiting.pipelined
        self._write_ready()
        self._pump()

    def _broken(self, error: Exception) -> None:
        logger.error("a request could not be answered, its connection is closed; please report this", exc_info=error)
        self.abort("internal error")

    def _write_ready(self) -> None:
        """Write what is ready, from the front; while pumping it is gathered, for each write is a system call."""
        while self._places and self._places[0].ready:
            self._outgoing += self._places.popleft().chunks
        if not self._pumping or sum(map(len, self._outgoing)) > GATHER_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None:
            outgoing, self._outgoing = self._outgoing, []
            self._transport.writelines(outgoing)
            self._count_unsent(sum(map(len, outgoing)))

    def _set_reading(self, wanted: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if wanted and not self._server.budget.may_grow(self._inbox.allocated):
            self._server.budget.starve(self)
            wanted = False
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def feed(self) -> None:
        """Buffers are free again: go on."""
        self._pump()

    def _count(self) -> None:
        allocated = self._inbox.allocated
        self._server.budget.buffer_bytes += allocated - self._counted
        if allocated < self._counted:
            self._server.memory_freed()
        self._counted = allocated

    def _count_unsent(self, written: int = 0) -> int:
        """Count what is held for the client: an answer stays in memory as a whole until its last byte is sent."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        held = max(self._unsent_counted, written) if unsent else 0
        self._server.budget.unsent_bytes += held - self._unsent_counted
        self._unsent_counted = held
        return unsent

    @property
    def allocated(self) -> int:
        """How much its receive buffer holds."""
        return self._inbox.allocated

    def statistics(self) -> dict[str, Any]:
        """Answer what this connection holds."""
        return {"places": len(self._places), "buffer_bytes": self._inbox.allocated, "reading": self._reading}
