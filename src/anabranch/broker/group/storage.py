"""The formats in which groups and offsets are stored, and how stored entries become state again.

A key or value is one byte of format version and then MessagePack. Keys are arrays that begin with what they name: an
offset (0, group, topic id, topic, partition) or a group (1, group). Values are arrays too. What is in them for later:
the group's type and each member's epoch (KIP-848), an expiry of each offset.

The last entry of a key wins and None removes it, so a log, a compacted log, and a snapshot (all entries that count, in
one piece) read the same way. Entries that a snapshot already has may be replayed over it, as long as the replay goes on
to the log's end.

The topic id is part of an offset's key because a topic may be deleted and made again under its name: progress in the
old one says nothing about the new one. There is one offset per name; a commit under another id removes the old key.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from anabranch.core.errors import UsageError

VERSION = 1
CLASSIC = "classic"
_PREFIX = bytes([VERSION])

Entry = tuple[bytes, bytes | None]
TopicPartition = tuple[str, int]


class StoredFormatError(UsageError):
    """What is stored was written by another version, or is not ours."""


class OffsetKey(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Names an offset."""

    group_id: str
    topic_id: bytes
    topic: str
    partition: int


class GroupKey(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Names a group."""

    group_id: str


class OffsetRecord(msgspec.Struct, frozen=True, array_like=True):
    """The stored value of an offset. `expires_ms` is reserved: offsets go with their group's retention."""

    position: int
    leader_epoch: int
    metadata: str | None
    commit_time_ms: int
    expires_ms: int | None
    topic_id: bytes


class MemberRecord(msgspec.Struct, frozen=True, array_like=True):
    """A member in the stored value of a group. `member_epoch` is reserved."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes
    member_epoch: int = 0


class GroupRecord(msgspec.Struct, frozen=True, array_like=True):
    """The stored value of a group. `rebalancing`: its members must join again, the assignment no longer covers all."""

    group_type: str
    protocol_type: str
    protocol_name: str | None
    generation: int
    leader: str | None
    rebalancing: bool
    changed_ms: int
    members: tuple[MemberRecord, ...]


_encode = msgspec.msgpack.Encoder().encode
_keys: msgspec.msgpack.Decoder[OffsetKey | GroupKey] = msgspec.msgpack.Decoder(OffsetKey | GroupKey)
_offsets = msgspec.msgpack.Decoder(OffsetRecord)
_groups = msgspec.msgpack.Decoder(GroupRecord)
_snapshots = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])


def encode(what: OffsetKey | GroupKey | OffsetRecord | GroupRecord) -> bytes:
    """Write a key or a value in the current version."""
    return _PREFIX + _encode(what)


def decode_key(data: bytes) -> OffsetKey | GroupKey:
    """Read a key."""
    try:
        return _keys.decode(_payload(data, "key"))
    except msgspec.MsgspecError as error:
        raise _unreadable("key") from error


def decode_offset(data: bytes) -> OffsetRecord:
    """Read the value of an offset."""
    try:
        return _offsets.decode(_payload(data, "offset"))
    except msgspec.MsgspecError as error:
        raise _unreadable("offset") from error


def decode_group(data: bytes) -> GroupRecord:
    """Read the value of a group; a type other than classic is refused."""
    try:
        record = _groups.decode(_payload(data, "group"))
    except msgspec.MsgspecError as error:
        raise _unreadable("group") from error
    if record.group_type != CLASSIC:
        raise StoredFormatError(
            f"a stored group has type {record.group_type!r}, this version knows {CLASSIC!r}: "
            "start the version of anabranch that wrote this data folder"
        )
    return record


def encode_snapshot(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write all entries that count in one piece, in the order of their keys: equal states give equal bytes."""
    return _PREFIX + _encode(sorted(entries))


def decode_snapshot(data: bytes) -> list[tuple[bytes, bytes]]:
    """Read a snapshot."""
    try:
        return _snapshots.decode(_payload(data, "snapshot"))
    except msgspec.MsgspecError as error:
        raise _unreadable("snapshot") from error


def _payload(data: bytes, what: str) -> memoryview:
    if not data:
        raise StoredFormatError(
            f"a stored {what} of the group coordinator is empty: restore the data folder from a copy"
        )
    if data[0] != VERSION:
        raise StoredFormatError(
            f"a stored {what} of the group coordinator has format version {data[0]}, this version knows {VERSION}: "
            "start the version of anabranch that wrote this data folder"
        )
    return memoryview(data)[1:]


def _unreadable(what: str) -> StoredFormatError:
    return StoredFormatError(
        f"a stored {what} of the group coordinator cannot be read: restore the data folder from a copy"
    )


@dataclass(slots=True)
class Image:
    """What stored entries add up to: the groups' records and values, and the offsets of each."""

    groups: dict[str, tuple[GroupRecord, bytes]] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, OffsetRecord]] = field(default_factory=dict)

    def apply(self, entries: Iterable[Entry]) -> None:
        """Take entries in the order of the log."""
        for key_data, value in entries:
            key = decode_key(key_data)
            if isinstance(key, OffsetKey):
                self._apply_offset(key, value)
            elif value is None:
                self.groups.pop(key.group_id, None)
            else:
                self.groups[key.group_id] = (decode_group(value), value)

    def _apply_offset(self, key: OffsetKey, value: bytes | None) -> None:
        offsets = self.offsets.setdefault(key.group_id, {})
        where = (key.topic, key.partition)
        if value is not None:
            offsets[where] = decode_offset(value)
        elif where in offsets and offsets[where].topic_id == key.topic_id:
            # A tombstone of another id is the old topic's and says nothing about this offset.
            del offsets[where]
        if not offsets:
            del self.offsets[key.group_id]
