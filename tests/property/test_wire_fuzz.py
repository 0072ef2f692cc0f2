"""Hostile bytes: only WireError comes out of decoding, in bounded memory."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import MESSAGE_VERSIONS, MESSAGES, as_version, structs

from anabranch.broker.wire.codec import decode, encode_bytes
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.headers import read_request_header

HUGE = [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x0f",
]
BYTES_PER_BYTE_MAX = 80
"""What one byte of input may cost. The densest valid entry has two bytes and becomes an object with an empty list."""


def read(cls: type[Any], version: int, data: bytes) -> Any:
    """Decode, and let nothing but a WireError pass."""
    try:
        return decode(cls, version, memoryview(data))
    except WireError:
        return None


@given(st.sampled_from(MESSAGE_VERSIONS), st.binary(max_size=200))
@settings(max_examples=1500)
def test_random_bytes_give_a_message_or_a_wire_error(message: tuple[type[Any], int], data: bytes) -> None:
    """Whatever the bytes: a message or a WireError. A message that was read can be written again."""
    cls, version = message
    found = read(cls, version, data)
    if found is not None:
        assert as_version(decode(cls, version, memoryview(encode_bytes(found, version))), version) == as_version(
            found, version
        )


@given(st.binary(max_size=64))
@settings(max_examples=500)
def test_random_headers_give_a_header_or_a_wire_error(data: bytes) -> None:
    """Whatever the bytes: a header that lies within the frame, or a WireError."""
    try:
        header = read_request_header(memoryview(data))
    except WireError:
        return
    assert 0 < header.body_position <= len(data)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_damaged_messages_give_a_message_or_a_wire_error(cls: type[Any]) -> None:
    """Cut anywhere: always an error. A bit flipped, or a length made huge, anywhere: a message or an error."""

    @given(structs(cls), st.integers(0, cls.WIRE.versions.last), st.data())
    @settings(max_examples=12)
    def damage(message: Any, version: int, data: st.DataObject) -> None:
        whole = encode_bytes(as_version(message, version), version)[:2000]
        places = st.integers(0, max(len(whole) - 1, 0))
        for _ in range(12):
            place = data.draw(places)
            assert read(cls, version, whole[:place]) is None or place == len(whole)
            flipped = bytearray(whole or b"\0")
            flipped[place] ^= 1 << data.draw(st.integers(0, 7))
            read(cls, version, bytes(flipped))
            huge = data.draw(st.sampled_from(HUGE))
            read(cls, version, whole[:place] + huge + whole[place + len(huge) :])
            read(cls, version, whole[:place] + huge + whole[place:])

    damage()


def crowds(cls: type[Any], count: int) -> Iterator[Any]:
    """Messages that consist of one array of empty entries, for each array of structs at any depth."""
    for field in fields(cls):
        wire = field.metadata["wire"]
        if wire.is_array and isinstance(wire.of, type):
            yield cls(**{field.name: [wire.of() for _ in range(count)]})
            yield from (cls(**{field.name: [inner]}) for inner in crowds(wire.of, count))


def peak_bytes(cls: type[Any], version: int, frame: bytes) -> int:
    """The most that was allocated at once while reading a frame."""
    tracemalloc.start()
    try:
        read(cls, version, frame)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_frame_of_a_kilobyte_makes_us_allocate_little(cls: type[Any]) -> None:
    """Memory is a small multiple of the input, for what claims more than there is and for the densest message."""
    fills = [bytes(1), b"\x01", b"\x7f", b"\xff", b"\x00\x00\x00\x01", b"\x00\x00\x01\x00", b"\x7f\xff\xff\xff"]
    frames = [(fill * 1024)[shift : shift + 1024] for fill in fills for shift in range(len(fill))]
    for version in {0, cls.WIRE.flexible.first - 1, cls.WIRE.flexible.first, cls.WIRE.versions.last}:
        dense = [encode_bytes(as_version(message, version), version) for message in crowds(cls, 500)]
        read(cls, version, b"")  # compiles, which is not what is measured
        for frame in (*frames, *(frame for frame in dense if len(frame) > 500)):
            assert peak_bytes(cls, version, frame) < BYTES_PER_BYTE_MAX * len(frame)
