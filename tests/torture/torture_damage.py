"""Damage to the files of a partition, and what must be left of it: computed from the bytes before and after."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PREFIX_BYTES = 12
LEADER_EPOCH = slice(12, 16)
"""Not covered by a batch's CRC and of no meaning to a reader: damage there cannot be seen."""

Strike = Callable[[random.Random, Path], str]


class StoredBatch(NamedTuple):
    """A batch in a segment file as the broker left it."""

    path: Path
    position: int
    base_offset: int
    data: bytes

    @property
    def next_offset(self) -> int:
        return self.base_offset + int.from_bytes(self.data[23:27], "big") + 1

    def is_whole(self, now: bytes) -> bool:
        """Answer whether the file still has it."""
        found = now[self.position : self.position + len(self.data)]
        return _without_epoch(found) == _without_epoch(self.data)


def stored_batches(folder: Path) -> list[StoredBatch]:
    """Take the segments of an undamaged partition apart."""
    found = []
    for path in sorted(folder.glob("*.log")):
        data, position = path.read_bytes(), 0
        while position < len(data):
            size = PREFIX_BYTES + int.from_bytes(data[position + 8 : position + PREFIX_BYTES], "big")
            base_offset = int.from_bytes(data[position : position + 8], "big")
            found.append(StoredBatch(path, position, base_offset, data[position : position + size]))
            position += size
    return found


def broken_batches(batches: list[StoredBatch]) -> list[StoredBatch]:
    """Answer those that are not there any more as they were."""
    contents = {path: path.read_bytes() for path in {batch.path for batch in batches}}
    return [batch for batch in batches if not batch.is_whole(contents[batch.path])]


def flip_a_bit(chance: random.Random, path: Path) -> str:
    data = bytearray(path.read_bytes())
    position = chance.randrange(len(data))
    data[position] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return f"a bit flipped at {position} of {len(data)}"


def overwrite(chance: random.Random, path: Path) -> str:
    """Zeros, ones, or bytes of another place: what a broken disk or a lost write leaves."""
    data = bytearray(path.read_bytes())
    position = chance.randrange(len(data))
    size = min(len(data) - position, chance.randrange(1, 5000))
    other = chance.randrange(len(data) - size + 1)
    source = chance.choice((bytes(size), b"\xff" * size, bytes(data[other : other + size])))
    data[position : position + size] = source
    path.write_bytes(data)
    return f"{size} bytes overwritten at {position} of {len(data)}"


def truncate(chance: random.Random, path: Path) -> str:
    data = path.read_bytes()
    size = chance.randrange(len(data))
    path.write_bytes(data[:size])
    return f"truncated to {size} of {len(data)}"


def append_garbage(chance: random.Random, path: Path) -> str:
    """Random bytes, or a batch that was there before: the remains of a file that had the space."""
    data = path.read_bytes()
    garbage = chance.choice(
        (chance.randbytes(chance.randrange(1, 5000)), data[: chance.randrange(1, len(data))], bytes(4096))
    )
    path.write_bytes(data + garbage)
    return f"{len(garbage)} bytes of garbage behind {len(data)}"


def remove(chance: random.Random, path: Path) -> str:
    path.unlink()
    return "removed"


def leave(chance: random.Random, path: Path) -> str:
    return "as it was, all files beside it removed"


LOG_STRIKES: tuple[Strike, ...] = (flip_a_bit, overwrite, truncate, append_garbage)
INDEX_STRIKES: tuple[Strike, ...] = (flip_a_bit, overwrite, truncate, append_garbage, remove)


def _without_epoch(data: bytes) -> bytes:
    return data[: LEADER_EPOCH.start] + data[LEADER_EPOCH.stop :]
