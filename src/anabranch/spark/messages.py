"""What driver and members say to each other, and how it stands in bytes.

A connection begins with the line `anabranch-channel 1`, from the member; then frames in both directions: a length
(big-endian u32) and a msgpack map with its kind under `kind`. The first frame is the member's `Hello` with the token.

Whoever connects may send anything, so nothing is believed before the token: the first line and the hello have small
limits of their own, and what does not fit them is refused with a sentence. No pickle crosses this channel.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from anabranch.core.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = 1
FIRST_LINE: Final = b"anabranch-channel %d\n" % VERSION
FRAME_BYTES_MAX: Final = 32 * 1024 * 1024
"""The statistics of a partition take about 600 bytes: room for 50,000 partitions."""
HELLO_BYTES_MAX: Final = 4096
_LENGTH: Final = struct.Struct(">I")


class _Message(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """One of the kinds below."""


class Hello(_Message, frozen=True, tag="hello"):
    """Member: who I am. The first frame of a connection."""

    token: str
    index: int
    job: int
    attempt: int
    pid: int = 0
    host: str = ""


class Report(_Message, frozen=True, tag="report"):
    """Member: I live. Each one is answered, and the answer renews the lease from the moment this was sent."""

    number: int
    statistics: dict[str, Any] | None = None


class Ended(_Message, frozen=True, tag="ended"):
    """Member: my run has ended, and how. `Dismissed` answers it."""

    exit_code: int
    reason: str
    error: str = ""
    """The name of the error's class; empty when there was none."""
    sentence: str = ""
    trace: str = ""
    """What the handler had raised, as Python prints it."""
    statistics: dict[str, Any] | None = None


class Welcome(_Message, frozen=True, tag="welcome"):
    """Driver: begin, after so many seconds."""

    wait_s: float = 0.0


class Refused(_Message, frozen=True, tag="refused"):
    """Driver: do not begin; let the Spark task end well, so that Spark does not try it again."""

    sentence: str


class Answer(_Message, frozen=True, tag="answer"):
    """Driver: this report was heard."""

    number: int


class Stop(_Message, frozen=True, tag="stop"):
    """Driver: drain, commit, leave; within so many seconds, or the run's own."""

    drain_s: float | None = None


class Terminate(_Message, frozen=True, tag="terminate"):
    """Driver: end now, whatever runs."""


class Dismissed(_Message, frozen=True, tag="dismissed"):
    """Driver: your end was heard; let the Spark task fail if it shall be tried again, else let it end well."""

    again: bool = False


FromMember = Hello | Report | Ended
FromDriver = Welcome | Refused | Answer | Stop | Terminate | Dismissed

_encode: Final = msgspec.msgpack.Encoder().encode
DRIVER_HEARS: Final = msgspec.msgpack.Decoder(FromMember)
MEMBER_HEARS: Final = msgspec.msgpack.Decoder(FromDriver)


def frame(message: FromMember | FromDriver) -> bytes:
    """Return the bytes of a message."""
    body = _encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise PeerError(f"a message of {len(body)} bytes is more than the control channel takes ({FRAME_BYTES_MAX})")
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into messages. Holds at most one frame that is not whole yet."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any], *, bytes_max: int, first_line: bool) -> None:
        """Expect frames of at most `bytes_max`, which may be raised later; behind the first line if there is one."""
        self.bytes_max = bytes_max
        self._decoder = decoder
        self._first_line = first_line
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Give the messages that are whole now; raise PeerError for what is none.

        Lazily: the limit may be raised between two messages of one piece.
        """
        self._held += data
        if self._first_line and not self._take_first_line():
            return
        while len(self._held) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held)
            if length > self.bytes_max:
                raise PeerError(f"a frame of {length} bytes: at most {self.bytes_max} are taken here")
            end = _LENGTH.size + length
            if len(self._held) < end:
                return
            body = bytes(self._held[_LENGTH.size : end])
            del self._held[:end]
            yield self._decoded(body)

    def _take_first_line(self) -> bool:
        """Check the first line as far as it is there; answer whether it is whole."""
        if not FIRST_LINE.startswith(self._held[: len(FIRST_LINE)]):
            raise PeerError(
                f"the other side does not speak version {VERSION} of the control channel: "
                "install the same version of anabranch on the driver and on all executors"
            )
        if len(self._held) < len(FIRST_LINE):
            return False
        del self._held[: len(FIRST_LINE)]
        self._first_line = False
        return True

    def _decoded(self, body: bytes) -> Any:
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise PeerError(f"a frame that is no message: {error}") from error
