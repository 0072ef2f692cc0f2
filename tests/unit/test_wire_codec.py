"""What the codec promises about memory, bounds and refusals."""

from typing import Any

import pytest

from anabranch.broker.wire.codec import decode, encode, encode_bytes
from anabranch.broker.wire.errors import WireError
from anabranch.broker.wire.messages.create_topics import CreateTopicsRequest
from anabranch.broker.wire.messages.delete_topics import DeleteTopicsRequest
from anabranch.broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from anabranch.broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.broker.wire.primitives import ENTRIES_MAX, uvarint
from anabranch.core.errors import InternalError


def fetch_answer(records: Any) -> FetchResponse:
    """An answer with one partition."""
    partition = PartitionData(partition_index=1, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


@pytest.mark.parametrize("version", [3, 9, 12])
def test_decoded_records_are_views_into_the_frame(version: int) -> None:
    """Records are never copied: they see a change of the frame below them."""
    partition = PartitionProduceData(records=b"record batch")
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    frame = bytearray(encode_bytes(request, version))
    records = decode(ProduceRequest, version, memoryview(frame)).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records == b"record batch"
    frame[frame.index(b"record")] ^= 0xFF
    assert records != b"record batch"


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_large_records_are_chunks_of_their_own_and_not_copied(version: int) -> None:
    """A payload above 4 KiB is handed on as the object that it is; all around it is coalesced."""
    large = memoryview(bytes(5000))
    chunks = encode(fetch_answer(large), version)
    assert [chunk is large for chunk in chunks][:2] == [False, True]
    assert len(chunks) <= 3


@pytest.mark.parametrize("version", [4, 17])
def test_a_list_of_records_is_their_concatenation(version: int) -> None:
    """The length in front is that of all parts; large parts stay apart, small ones are coalesced."""
    parts = [b"a" * 10, memoryview(b"b" * 5000), b"c" * 6000, b"", b"d"]
    chunks = encode(fetch_answer(parts), version)
    assert b"".join(chunks) == encode_bytes(fetch_answer(b"".join(parts)), version)
    assert sum(chunk is parts[1] or chunk is parts[2] for chunk in chunks) == 2
    assert encode_bytes(fetch_answer([]), version) == encode_bytes(fetch_answer(b""), version)
    assert encode_bytes(fetch_answer([]), version) != encode_bytes(fetch_answer(None), version)


def test_a_field_that_the_version_lacks_is_skipped_and_reads_as_its_default() -> None:
    """One answer serves all versions: a value that an old version cannot carry is left out."""
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id="i")
    assert encode_bytes(request, 0) == bytes.fromhex("0001 67 00000003 0001 6d")
    assert decode(HeartbeatRequest, 0, memoryview(encode_bytes(request, 0))).group_instance_id is None
    assert decode(HeartbeatRequest, 3, memoryview(encode_bytes(request, 3))).group_instance_id == "i"


def test_tagged_fields_are_written_in_order_and_only_when_set() -> None:
    """A tagged field at its default costs nothing; two of them follow each other by tag."""
    empty = encode_bytes(FetchRequest(), 15)
    assert empty.endswith(b"\x01\x00")  # rack id, no tags
    full = FetchRequest(cluster_id="c", replica_state=ReplicaState(replica_id=1, replica_epoch=2))
    tags = bytes.fromhex("02 00 02 02 63 01 0d 00000001 0000000000000002 00")
    assert encode_bytes(full, 15) == empty[:-1] + tags
    assert decode(FetchRequest, 15, memoryview(encode_bytes(full, 15))) == full


def test_unknown_tagged_fields_are_skipped() -> None:
    """A newer client may send tags that we do not know, before and behind those that we know."""
    known = encode_bytes(FetchRequest(), 15)
    tags = bytes.fromhex("03 00 02 02 63 07 01 ff 8501 02 ffff")
    assert decode(FetchRequest, 15, memoryview(known[:-1] + tags)) == FetchRequest(cluster_id="c")
    beat = encode_bytes(HeartbeatResponse(), 4)
    assert decode(HeartbeatResponse, 4, memoryview(beat[:-1] + bytes.fromhex("01 09 01 00"))) == HeartbeatResponse()


@pytest.mark.parametrize("tags", ["01 00 03 02 63 00", "01 00 01 02 63", "01 01 0c 00", "01 09 7f 00", "ffffffff0f"])
def test_a_tag_that_lies_about_its_size_is_a_wire_error(tags: str) -> None:
    """Content shorter or longer than announced, a tag that ends behind the message, a count of four billion."""
    known = encode_bytes(FetchRequest(), 15)
    with pytest.raises(WireError):
        decode(FetchRequest, 15, memoryview(known[:-1] + bytes.fromhex(tags)))


def test_bytes_behind_the_end_are_ignored() -> None:
    """librdkafka's list of all topics has three bytes too many in Metadata 9 and up; Kafka answers it, and so do we."""
    request = decode(MetadataRequest, 13, memoryview(bytes.fromhex("00000000010000")))
    assert request.topics is None


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 1, "fffffffe"),
        (MetadataRequest, 0, "ffffffff"),
        (MetadataRequest, 1, "7fffffff"),
        (MetadataRequest, 9, "ffffffff0f 00 00 00 00"),
        (MetadataRequest, 9, "ffffffff7f 00 00 00 00"),
        (MetadataRequest, 9, "808080808001 00 00 00 00"),
        (MetadataRequest, 1, "00000001 ffff"),
        (MetadataRequest, 1, "00000001 8000"),
        (MetadataRequest, 1, "00000001 0001 ff"),
        (ProduceRequest, 3, "ffff 0001 00000000 00000001 0001 74 00000001 00000000 fffffffe"),
        (ProduceRequest, 3, "ffff 0001 00000000 00000001 0001 74 00000001 00000000 7fffffff"),
    ],
)
def test_impossible_lengths_are_wire_errors(cls: type[Any], version: int, data: str) -> None:
    """Negative lengths, null where null is not allowed, counts and lengths beyond the end, long varints, bad UTF-8."""
    with pytest.raises(WireError):
        decode(cls, version, memoryview(bytes.fromhex(data)))


def test_a_count_is_compared_with_what_is_left_before_anything_is_read() -> None:
    """Two billion entries are refused by their count, not by running out of bytes."""
    with pytest.raises(WireError, match=r"MetadataRequest\.topics: an array of 2147483647 entries"):
        decode(MetadataRequest, 1, memoryview(bytes.fromhex("7fffffff") + bytes(100)))


def test_more_entries_than_the_limit_are_a_wire_error() -> None:
    """The limit counts all arrays of a message together, so that a large frame of empty entries stays cheap."""

    def request(count: int) -> memoryview:
        return memoryview(uvarint(count + 1) + b"\x01\x00" * count + bytes(4))

    assert len(decode(MetadataRequest, 9, request(1000)).topics or []) == 1000
    with pytest.raises(WireError, match="100001 entries"):
        decode(MetadataRequest, 9, request(ENTRIES_MAX + 1))
    half = ENTRIES_MAX // 2
    nested = uvarint(half + 1) + b"\x01\x01\x00" * (half - 1) + b"\x01" + uvarint(half + 2)
    with pytest.raises(WireError, match="50001 entries"):
        decode(FetchRequest, 12, memoryview(bytes(25) + nested + bytes(half * 40)))


def test_a_version_that_does_not_exist_is_refused() -> None:
    """Reading it is the peer's fault, writing it is ours."""
    with pytest.raises(WireError, match="no version 99"):
        decode(MetadataRequest, 99, memoryview(b""))
    with pytest.raises(WireError, match="no version -1"):
        decode(MetadataRequest, -1, memoryview(b""))
    with pytest.raises(InternalError, match="no version 99"):
        encode(MetadataRequest(), 99)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 0),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 1),
        (HeartbeatResponse(throttle_time_ms=2**31), 1),
        (HeartbeatRequest(group_id="x" * 40_000), 0),
        (FetchRequest(topics=[FetchTopic(topic_id=b"short")]), 13),
        (HeartbeatRequest(group_id="\ud800"), 4),
    ],
)
def test_what_a_version_cannot_hold_is_an_internal_error(message: Any, version: int) -> None:
    """A null, a number or an id that does not fit is a bug of ours; it is never cut or sent as something else."""
    with pytest.raises(InternalError, match="cannot hold this"):
        encode(message, version)


def test_reading_begins_at_a_position() -> None:
    """The body begins behind the header, in the same frame."""
    body = encode_bytes(DeleteTopicsRequest(topic_names=["a"]), 1)
    assert decode(DeleteTopicsRequest, 1, memoryview(b"header" + body), 6).topic_names == ["a"]
    assert decode(CreateTopicsRequest, 0, memoryview(b"\xff" * 3 + encode_bytes(CreateTopicsRequest(), 0)), 3)


def test_a_tagged_struct_in_a_partition_travels() -> None:
    """KIP-951: the leader that a client should go to is a tagged struct of the partition, and None otherwise."""
    leader = LeaderIdAndEpoch(leader_id=4, leader_epoch=7)
    answer = fetch_answer(b"")
    answer.responses[0].partitions[0].current_leader = leader
    decoded = decode(FetchResponse, 16, memoryview(encode_bytes(answer, 16)))
    assert decoded.responses[0].partitions[0].current_leader == leader
    assert decoded.responses[0].partitions[0].diverging_epoch is None
