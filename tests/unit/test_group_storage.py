"""The stored formats: they read back as written, and what is not ours is refused with a sentence."""

from collections.abc import Callable

import msgspec
import pytest

from anabranch.broker.group.storage import (
    GroupKey,
    GroupRecord,
    Image,
    MemberRecord,
    OffsetKey,
    OffsetRecord,
    StoredFormatError,
    decode_group,
    decode_key,
    decode_offset,
    decode_snapshot,
    encode,
    encode_snapshot,
)
from anabranch.core.errors import UsageError

OLD, NEW = b"o" * 16, b"n" * 16
OFFSET = OffsetRecord(5, 2, "text\0", 1_700_000_000_000, None, OLD)
MEMBER = MemberRecord("anna", "a", "client", "host", 10.0, 30.5, (("range", b"\xff"), ("sticky", b"")), b"\0\1")
GROUP = GroupRecord("classic", "consumer", "range", 7, "anna", False, 1_700_000_000_000, (MEMBER,))


def test_keys_and_values_read_back_as_written() -> None:
    """Nothing is lost or changed, not even bytes that are no text."""
    for key in (OffsetKey("g", OLD, "orders", 3), GroupKey("g")):
        assert decode_key(encode(key)) == key
    assert decode_offset(encode(OFFSET)) == OFFSET
    assert decode_group(encode(GROUP)) == GROUP


def test_the_formats_of_version_1_stay_as_they_are() -> None:
    """Data folders hold these bytes: a change of them needs a new version."""
    assert encode(GroupKey("g")).hex() == "019201a167"
    assert encode(OffsetKey("g", OLD, "t", 3)).hex() == "019500a167c410" + OLD.hex() + "a17403"
    assert encode(OffsetRecord(5, -1, None, 9, None, OLD)).hex() == "019605ffc009c0c410" + OLD.hex()
    empty = GroupRecord("classic", "consumer", None, 1, None, False, 2, ())
    assert encode(empty).hex() == "0198a7" + b"classic".hex() + "a8" + b"consumer".hex() + "c001c0c20290"
    member = MemberRecord("m", None, "c", "h", 1.0, 2.0, (("p", b"x"),), b"y")
    expected = "99a16dc0a163a168cb3ff0000000000000cb40000000000000009192a170c40178c4017900"
    assert msgspec.msgpack.encode(member).hex() == expected


@pytest.mark.parametrize("decode", [decode_key, decode_offset, decode_group, decode_snapshot])
def test_another_version_is_refused_with_a_sentence(decode: Callable[[bytes], object]) -> None:
    """The message says which version was found, which is known, and what to do; damage is refused too."""
    with pytest.raises(StoredFormatError, match=r"format version 2, this version knows 1: start the version"):
        decode(b"\2\xc0")
    for damaged in (b"", b"\1", b"\1\xc1", b"\1\x93\xff"):
        with pytest.raises(UsageError, match="restore the data folder"):
            decode(damaged)


def test_a_group_of_another_type_is_refused() -> None:
    """A group of a later protocol is not taken for a classic one."""
    with pytest.raises(StoredFormatError, match="'consumer', this version knows 'classic'"):
        decode_group(encode(msgspec.structs.replace(GROUP, group_type="consumer")))


def test_the_last_entry_wins_and_none_removes() -> None:
    """Replaying the same entries again changes nothing."""
    key = encode(OffsetKey("g", OLD, "orders", 0))
    later = msgspec.structs.replace(OFFSET, position=6)
    entries = [(key, encode(OFFSET)), (key, None), (key, encode(later)), (encode(GroupKey("g")), encode(GROUP))]
    image = Image()
    image.apply(entries)
    image.apply(entries)
    assert image.offsets == {"g": {("orders", 0): later}}
    assert image.groups["g"][0] == GROUP
    image.apply([(key, None), (encode(GroupKey("g")), None), (encode(GroupKey("unknown")), None)])
    assert (image.offsets, image.groups) == ({}, {})


def test_a_tombstone_of_an_old_topic_does_not_remove_the_offset_of_the_new_one() -> None:
    """The same name under another topic id is another topic."""
    image = Image()
    new = msgspec.structs.replace(OFFSET, topic_id=NEW)
    image.apply(
        [(encode(OffsetKey("g", NEW, "orders", 0)), encode(new)), (encode(OffsetKey("g", OLD, "orders", 0)), None)]
    )
    assert image.offsets == {"g": {("orders", 0): new}}


def test_equal_states_give_equal_snapshots() -> None:
    """The order in which things happened is not in a snapshot."""
    entries = [(b"b", b"2"), (b"a", b"1")]
    assert encode_snapshot(entries) == encode_snapshot(entries[::-1])
    assert decode_snapshot(encode_snapshot(entries)) == sorted(entries)
