"""The first bytes of every small file that the log writes: what it is, its version, and a CRC over all of it.

    magic 4 bytes · version u16 · zero u16 · CRC-32C u32 over everything else · body

Damaged and unknown are different things: a file whose CRC does not match is as good as absent, since all that these
files hold can be made again from the segments; one whose CRC matches and whose version is not ours was written by
another release on purpose, and guessing at it could lose records.
"""

from struct import Struct

from fastcrc.crc32 import iscsi as crc32c

from anabranch.core.errors import UsageError

ENVELOPE_BYTES = 12
_HEAD = Struct("<4sHHI")


def seal(magic: bytes, version: int, body: bytes) -> bytes:
    """Put a body into its envelope."""
    bare = _HEAD.pack(magic, version, 0, 0)
    return _HEAD.pack(magic, version, 0, crc32c(bare + body)) + body


def unseal(magic: bytes, version: int, data: bytes | None, path: str) -> bytes | None:
    """Give the body; None when the file is absent or damaged. Raises UsageError when it is of another version."""
    if data is None or len(data) < ENVELOPE_BYTES:
        return None
    found_magic, found_version, zero, crc = _HEAD.unpack_from(data)
    body = data[ENVELOPE_BYTES:]
    if found_magic != magic or zero or crc32c(_HEAD.pack(magic, found_version, 0, 0) + body) != crc:
        return None
    if found_version != version:
        raise UsageError(
            f"{path} has format version {found_version} and this release reads version {version}: "
            "start the release that wrote it, or move the data folder away"
        )
    return body
