"""Cut a byte stream into frames, in place: one receive buffer per connection.

A frame is a four-byte length and as many bytes. The socket writes straight into the buffer (`writable`, `filled`),
`next_frame` answers a view of the frame where it lies. What must hold:

- `start <= end <= len(buffer)`; bytes in [start, end) were received and not handed out yet.
- A view that was handed out is dead at the next `writable`: callers finish with it before they return to the socket.
- The buffer grows only as bytes arrive, by doubling, and never beyond the frame it waits for: a length field alone
  costs nothing, so a client that claims 100 MB and sends ten bytes holds the smallest buffer.
- A buffer without unread bytes can be dropped (`release`): an idle connection holds none.

Rejected: a fresh `bytes` per read (asyncio's default) copies a 1 MB request sixteen times while it is put together.
"""

from typing import Final

from anabranch.broker.wire.errors import WireError

LENGTH_BYTES: Final = 4
BUFFER_BYTES_MIN: Final = 16 * 1024
"""The first buffer: most requests of consumers and coordinators fit."""
BUFFER_BYTES_READ: Final = 1024 * 1024
"""Once a connection sends big frames, room for reading ahead into the next one."""


class FrameBuffer:
    """The bytes of one connection that are received and not yet understood."""

    __slots__ = ("_buffer", "_end", "_frame_bytes_max", "_start")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._start = 0
        self._end = 0

    @property
    def allocated(self) -> int:
        """How many bytes the buffer holds in memory."""
        return len(self._buffer)

    @property
    def unread(self) -> int:
        """How many received bytes wait to be handed out."""
        return self._end - self._start

    def writable(self) -> memoryview:
        """Answer where the next bytes go; never empty. Views handed out before are dead from here on."""
        if self._start == self._end:
            self._start = self._end = 0
        free = len(self._buffer) - self._end
        if free < max(1, min(self._wanted() - self.unread, len(self._buffer) // 4)):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def filled(self, count: int) -> None:
        """Take note that `count` bytes were written to what `writable` gave."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """Answer the next whole frame without its length, or None; raise WireError for a length that cannot be."""
        if self.unread < LENGTH_BYTES:
            return None
        length = self._length()
        stop = self._start + LENGTH_BYTES + length
        if stop > self._end:
            return None
        frame = memoryview(self._buffer)[self._start + LENGTH_BYTES : stop]
        self._start = stop
        return frame

    def release(self) -> None:
        """Give the memory back if nothing unread is in it."""
        if self._start == self._end and self._buffer:
            self._buffer = bytearray()
            self._start = self._end = 0

    def drop(self) -> None:
        """Forget everything: the connection is gone."""
        self._start = self._end
        self.release()

    def _length(self) -> int:
        length = int.from_bytes(self._buffer[self._start : self._start + LENGTH_BYTES], "big", signed=True)
        if not 0 < length <= self._frame_bytes_max:
            message = f"a frame of {length} bytes; between 1 and {self._frame_bytes_max} are taken (request_bytes_max)"
            raise WireError(message)
        return length

    def _wanted(self) -> int:
        """How many bytes the frame under way takes in all, as far as is known."""
        return LENGTH_BYTES + self._length() if self.unread >= LENGTH_BYTES else LENGTH_BYTES

    def _make_room(self) -> None:
        unread, size = self.unread, len(self._buffer)
        if unread > size // 2 or not size:
            wanted = self._wanted()
            roomy = wanted + BUFFER_BYTES_READ if wanted > BUFFER_BYTES_MIN else BUFFER_BYTES_MIN
            fresh = bytearray(max(min(2 * size, roomy), unread + BUFFER_BYTES_MIN))
            fresh[:unread] = memoryview(self._buffer)[self._start : self._end]
            self._buffer = fresh
        else:
            self._buffer[:unread] = self._buffer[self._start : self._end]
        self._start, self._end = 0, unread
