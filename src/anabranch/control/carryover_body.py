"""Packs settled offsets into few bytes: run lengths or a bitset, plain or deflated, whichever is smallest.

What is packed is a list of *steps*: gap, length, gap, length… Each gap counts offsets that are not settled, from the
committable position on, each length the settled ones after it; only the first gap may be 0.

A body is one byte that names the form, then the data. Runs are the steps as varints (seven bits a byte, low first);
a bitset has one bit per offset, low first. Where nothing fits the budget, each form is cut to the longest beginning
that does, and the one that knows most wins: they are all beginnings of the same thing, so each one's knowledge contains
the next one's, and what is dropped is what is farthest from committable.

Unpacking takes anything, and its time and memory are bounded by `DATA_BYTES_MAX` whatever it is given.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from enum import IntEnum
from itertools import accumulate, cycle
from operator import mul
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA_BYTES_MAX: Final = 32 * 1024
"""Of data before it is deflated: more would seldom fit afterwards, and a reader need not expect more."""
BITS_MAX: Final = DATA_BYTES_MAX * 8
DEFLATE_TRIES_MAX: Final = 4
"""How often a shorter beginning is deflated again because the last did not fit."""
VARINT_BYTES_MAX: Final = 9
"""63 bits: what an offset may have."""

_LEVEL: Final = 3  # within 2 % of level 9 on such data, in a third of the time
_RAW: Final = -15
_CONTINUED: Final = bytes(range(128, 256))
_ONES: Final = re.compile("1+")


class Damaged(ValueError):
    """The bytes are not a body."""


class Form(IntEnum):
    """How a body is written."""

    RUNS = 0
    BITS = 1
    RUNS_DEFLATED = 2
    BITS_DEFLATED = 3


class _Candidate(NamedTuple):
    settled: int
    size: int
    body: bytes


def pack(steps: Sequence[int], budget: int) -> bytes:
    """Answer the smallest body, or if none fits the budget the one that knows most; empty when nothing fits."""
    runs, bits = varints(steps), _bitset(steps)
    whole = sum(steps[1::2])
    candidates = [
        *_candidates(Form.RUNS, runs, budget, whole if len(runs) < DATA_BYTES_MAX else -1),
        *_candidates(Form.BITS, bits, budget, whole if sum(steps) < BITS_MAX else -1),
    ]
    best = min(candidates, key=lambda candidate: (-candidate.settled, candidate.size))
    return best.body if best.settled else b""


def unpack(body: bytes) -> list[int]:
    """Answer the steps of a body, or raise Damaged."""
    if not body:
        return []
    try:
        form = Form(body[0])
    except ValueError as error:
        raise Damaged(f"form {body[0]} is not known") from error
    data = body[1:]
    if form in {Form.RUNS_DEFLATED, Form.BITS_DEFLATED}:
        data = _inflated(data)
    if len(data) > DATA_BYTES_MAX:
        raise Damaged("it is too long")
    steps = read_varints(data) if form in {Form.RUNS, Form.RUNS_DEFLATED} else _steps_of_bits(data)
    if len(steps) % 2 or 0 in steps[1:]:
        raise Damaged("a run is empty or has no end")
    return steps


def varints(numbers: Sequence[int]) -> bytes:
    """Write numbers of 63 bits at most, seven bits a byte, low first."""
    if max(numbers, default=0) < 128:
        return bytes(numbers)
    out = bytearray()
    for number in numbers:
        rest = number
        while rest >= 128:
            out.append(rest & 127 | 128)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def read_varints(data: bytes) -> list[int]:
    """Read numbers to the end of the data, or raise Damaged."""
    if data.isascii():
        return list(data)
    numbers = []
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        if byte < 128:
            numbers.append(number)
            number = shift = 0
        else:
            shift += 7
            if shift >= 7 * VARINT_BYTES_MAX:
                raise Damaged("a number is too long")
    if shift:
        raise Damaged("a number is cut off")
    return numbers


def _candidates(form: Form, data: bytes, budget: int, whole: int) -> list[_Candidate]:
    """Write the data plain and deflated; `whole` is what all of it knows, or -1 when it was cut already."""
    room = budget - 1
    plain = data if len(data) <= room else _beginning(form, data, room)
    deflated, kept = _deflated(form, data[:DATA_BYTES_MAX] if whole < 0 else data, room)
    deflated_form = Form.RUNS_DEFLATED if form is Form.RUNS else Form.BITS_DEFLATED
    return [
        _Candidate(_settled(form, plain, data, whole), len(plain), bytes([form]) + plain),
        _Candidate(_settled(form, kept, data, whole), len(deflated), bytes([deflated_form]) + deflated),
    ]


def _settled(form: Form, kept: bytes, data: bytes, whole: int) -> int:
    if whole >= 0 and len(kept) == len(data):
        return whole
    if form is Form.BITS:
        return int.from_bytes(kept, "little").bit_count()
    return sum(read_varints(kept)[1::2])


def _beginning(form: Form, data: bytes, room: int) -> bytes:
    """Cut the data to at most this many bytes, where it may be cut: a bitset anywhere, runs after a length."""
    cut = data[: max(0, room)]
    if form is Form.BITS or len(cut) == len(data):
        return cut
    while cut and cut[-1] >= 128:
        cut = cut[:-1]
    if len(cut.translate(None, _CONTINUED)) % 2:
        cut = cut[:-1]
        while cut and cut[-1] >= 128:
            cut = cut[:-1]
    return cut


def _deflated(form: Form, data: bytes, room: int) -> tuple[bytes, bytes]:
    """Deflate the longest beginning that we find to fit; answer it, and what it was before."""
    kept = _beginning(form, data, DATA_BYTES_MAX)
    for _ in range(DEFLATE_TRIES_MAX):
        compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
        deflated = compressor.compress(kept) + compressor.flush()
        if len(deflated) <= room:
            return deflated, kept
        kept = _beginning(form, kept, len(kept) * room * 31 // (len(deflated) * 32))
    return b"", b""


def _inflated(data: bytes) -> bytes:
    inflator = zlib.decompressobj(_RAW)
    try:
        plain = inflator.decompress(data, DATA_BYTES_MAX + 1)
    except zlib.error as error:
        raise Damaged("it cannot be inflated") from error
    if not inflator.eof or inflator.unused_data:
        raise Damaged("it is too long or cut off")
    return plain


def _bitset(steps: Sequence[int]) -> bytes:
    """Write a bit per offset, for at most BITS_MAX of them."""
    if sum(steps) > BITS_MAX:
        ends = list(accumulate(steps))
        cut = bisect_left(ends, BITS_MAX)
        steps = [*steps[:cut], steps[cut] - (ends[cut] - BITS_MAX)]
    bits = "".join(map(mul, cycle("01"), steps))
    return int(bits[::-1] or "0", 2).to_bytes((len(bits) + 7) // 8, "little")


def _steps_of_bits(data: bytes) -> list[int]:
    bits = f"{int.from_bytes(data, 'little'):b}"[::-1]
    steps: list[int] = []
    end = 0
    for run in _ONES.finditer(bits):
        steps += (run.start() - end, run.end() - run.start())
        end = run.end()
    return steps
