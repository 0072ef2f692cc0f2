"""Messages between driver and members: what is said arrives, in whatever pieces; what is none is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.errors import PeerError
from anabranch.spark.messages import (
    DRIVER_HEARS,
    FIRST_LINE,
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    MEMBER_HEARS,
    Answer,
    Dismissed,
    Ended,
    FrameReader,
    Hello,
    Refused,
    Report,
    Stop,
    Terminate,
    Welcome,
    frame,
)

FROM_MEMBER = [
    Hello("token", 1, 2, 3, 4, "host"),
    Report(1, {"settled": 3, "partitions": {"a/0": {"true_lag": None, "age_s": 0.5}}}),
    Report(2),
    Ended(4, "halted", "Halted", "a sentence", "a trace", {"settled": 1}),
]
FROM_DRIVER = [
    Welcome(0.5),
    Refused("no"),
    Answer(3),
    Stop(),
    Stop(2.0),
    Terminate(),
    Dismissed(),
    Dismissed(again=True),
]


def driver_reader(bytes_max: int = FRAME_BYTES_MAX) -> FrameReader:
    return FrameReader(DRIVER_HEARS, bytes_max=bytes_max, first_line=True)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_messages_arrive_whole_whatever_the_pieces(cuts: list[int]) -> None:
    """The stream may be cut anywhere."""
    data = FIRST_LINE + b"".join(map(frame, FROM_MEMBER))
    reader = driver_reader()
    heard: list[Any] = []
    start = 0
    for cut in [*cuts, len(data)]:
        heard += reader.feed(data[start : start + cut])
        start += cut
    assert heard == FROM_MEMBER


def test_the_member_understands_everything_that_the_driver_says() -> None:
    """Every kind of message, there and back."""
    reader = FrameReader(MEMBER_HEARS, bytes_max=FRAME_BYTES_MAX, first_line=False)
    assert list(reader.feed(b"".join(map(frame, FROM_DRIVER)))) == FROM_DRIVER


def test_another_version_is_refused_with_what_to_do() -> None:
    """The first line says the version, before anything else is read."""
    with pytest.raises(PeerError, match="install the same version of anabranch"):
        list(driver_reader().feed(b"anabranch-channel 2\n" + frame(FROM_MEMBER[0])))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        FIRST_LINE + struct.pack(">I", HELLO_BYTES_MAX + 1),
        FIRST_LINE + struct.pack(">I", 0xFFFFFFFF) + b"x",
        FIRST_LINE + struct.pack(">I", 0),
        FIRST_LINE + struct.pack(">I", 3) + b"\xc1\xc1\xc1",
        FIRST_LINE + struct.pack(">I", 2000) + b"\x91" * 2000,
        FIRST_LINE + frame(Answer(1)),
        FIRST_LINE + frame(Hello("token", 1, 2, 3)).replace(b"index", b"outdx"),
    ],
    ids=["http", "tls", "long", "longest", "empty", "no msgpack", "nested", "driver's own", "another field"],
)
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    """Whatever a stranger sends, it is refused and not believed."""
    with pytest.raises(PeerError):
        list(driver_reader(HELLO_BYTES_MAX).feed(data))


@given(st.binary(max_size=200))
def test_noise_behind_the_first_line_never_does_anything_but_wait_or_fail(noise: bytes) -> None:
    """No other exception, and no message."""
    try:
        heard = list(driver_reader(HELLO_BYTES_MAX).feed(FIRST_LINE + noise))
    except PeerError:
        return
    assert heard == []


def test_a_message_that_is_too_long_is_not_sent() -> None:
    """The other side would hang up; better to know here."""
    with pytest.raises(PeerError, match="more than the control channel takes"):
        frame(Refused("x" * (FRAME_BYTES_MAX + 1)))


def test_the_limit_may_rise_between_two_messages_of_one_piece() -> None:
    """A member's hello and its first report may arrive together; only the hello is held to the small limit."""
    reader = driver_reader(HELLO_BYTES_MAX)
    heard = reader.feed(FIRST_LINE + frame(FROM_MEMBER[0]) + frame(Report(1, {"why": "x" * HELLO_BYTES_MAX})))
    assert isinstance(next(heard), Hello)
    reader.bytes_max = FRAME_BYTES_MAX
    assert isinstance(next(heard), Report)
