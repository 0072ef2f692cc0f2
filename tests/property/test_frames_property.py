"""Frames come out as they were sent, however the bytes arrive, and a hostile length costs nothing."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.frames import BUFFER_BYTES_MIN, FrameBuffer

FRAME_BYTES_MAX = 300_000
frames = st.lists(st.integers(1, 200_000).map(lambda size: (size % 251).to_bytes() * size), min_size=1, max_size=6)


def receive(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """Feed bytes as a socket would and take the frames that come out."""
    taken = []
    while data:
        room = buffer.writable()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        buffer.filled(count)
        data = data[count:]
        while (frame := buffer.next_frame()) is not None:
            taken.append(bytes(frame))
    return taken


@given(frames, st.lists(st.integers(1, 70_000), max_size=30))
def test_frames_come_out_as_sent_however_the_bytes_arrive(sent: list[bytes], cuts: list[int]) -> None:
    """Any cutting of the stream gives the same frames, and nothing is left over."""
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in sent)
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    taken = []
    for cut in cuts:
        taken += receive(buffer, stream[:cut])
        stream = stream[cut:]
    taken += receive(buffer, stream)
    assert taken == sent
    assert buffer.unread == 0


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_length_that_cannot_be_is_refused_and_any_other_costs_only_what_arrived(length: int) -> None:
    """A claimed 100 MB allocates nothing; zero, negative and too large lengths are a WireError."""
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    if 0 < length <= FRAME_BYTES_MAX:
        receive(buffer, struct.pack(">i", length) + b"x" * min(10, length - 1))
        assert buffer.writable()
        assert buffer.allocated <= 2 * BUFFER_BYTES_MIN
    else:
        with pytest.raises(WireError, match="request_bytes_max"):
            receive(buffer, struct.pack(">i", length))


def test_an_idle_buffer_is_given_back_and_a_half_read_one_is_not() -> None:
    """Only what is empty may be released."""
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    receive(buffer, struct.pack(">i", 5) + b"ab")
    buffer.release()
    assert buffer.unread == 6
    assert receive(buffer, b"cde") == [b"abcde"]
    buffer.release()
    assert buffer.allocated == 0


def test_a_stream_of_large_frames_settles_at_a_buffer_of_bounded_size() -> None:
    """Reading ahead is bounded: twice a frame and a little, not the sum of what passed through."""
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    frame = struct.pack(">i", 250_000) + bytes(250_000)
    for _ in range(20):
        receive(buffer, frame)
    assert buffer.allocated <= 250_000 + 1024 * 1024 + BUFFER_BYTES_MIN
