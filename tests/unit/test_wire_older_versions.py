"""Byte vectors, written by hand from the protocol's history, for the versions that no other implementation here has."""

from typing import Any

import pytest

from anabranch.broker.wire.codec import decode, encode_bytes
from anabranch.broker.wire.messages import (
    create_topics,
    delete_topics,
    describe_configs,
    fetch,
    list_offsets,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)

PRODUCE = produce.ProduceRequest(
    acks=-1,
    timeout_ms=1500,
    topic_data=[
        produce.TopicProduceData(name="t", partition_data=[produce.PartitionProduceData(index=2, records=b"\xaa\xbb")])
    ],
)
PRODUCE_BYTES = "ffff 000005dc 00000001 0001 74 00000001 00000002 00000002 aabb"


def produced(**more: int) -> produce.ProduceResponse:
    """An answer with one refused partition."""
    throttle_time_ms = more.pop("throttle_time_ms", 0)
    partition = produce.PartitionProduceResponse(index=2, error_code=35, base_offset=-1, **more)  # type: ignore[arg-type]
    topic = produce.TopicProduceResponse(name="t", partition_responses=[partition])
    return produce.ProduceResponse(responses=[topic], throttle_time_ms=throttle_time_ms)


def fetching(**more: int) -> fetch.FetchRequest:
    """A request for one partition."""
    partition = fetch.FetchPartition(partition=3, fetch_offset=9, partition_max_bytes=4096)
    topic = fetch.FetchTopic(topic="t", partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic], **more)  # type: ignore[arg-type]


def fetched(**more: int) -> fetch.FetchResponse:
    """An answer with one refused partition."""
    partition = fetch.PartitionData(partition_index=3, error_code=35, high_watermark=-1, records=b"")
    topic = fetch.FetchableTopicResponse(topic="t", partitions=[partition])
    return fetch.FetchResponse(responses=[topic], **more)  # type: ignore[arg-type]


def committing(version: int) -> offset_commit.OffsetCommitRequest:
    """A commit of one offset, with what the version can say."""
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=1, committed_offset=7, committed_metadata="m", commit_timestamp=5 if version else -1
    )
    topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = offset_commit.OffsetCommitRequest(group_id="g", topics=[topic])
    if version:
        request.generation_id_or_member_epoch, request.member_id = 4, "c"
    return request


def committed() -> offset_commit.OffsetCommitResponse:
    """The answer to it."""
    partition = offset_commit.OffsetCommitResponsePartition(partition_index=1, error_code=25)
    topic = offset_commit.OffsetCommitResponseTopic(name="t", partitions=[partition])
    return offset_commit.OffsetCommitResponse(topics=[topic])


def creating(**more: bool) -> create_topics.CreateTopicsRequest:
    """A topic with one assignment and one config."""
    topic = create_topics.CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=1,
        assignments=[create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
        configs=[create_topics.CreatableTopicConfig(name="k", value=None)],
    )
    return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10, **more)


CREATE_BYTES = (
    "00000001 0001 74 ffffffff 0001 00000001 00000000 00000002 00000001 00000002 00000001 0001 6b ffff 0000000a"
)


def described() -> describe_configs.DescribeConfigsResponse:
    """An answer with one default config."""
    config = describe_configs.DescribeConfigsResourceResult(
        name="k", value="v", read_only=True, is_default=True, is_sensitive=False
    )
    result = describe_configs.DescribeConfigsResult(
        error_message=None, resource_type=2, resource_name="t", configs=[config]
    )
    return describe_configs.DescribeConfigsResponse(results=[result])


def epoch_asked() -> offset_for_leader_epoch.OffsetForLeaderEpochRequest:
    """A question about one epoch."""
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(partition=1, leader_epoch=6)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic="t", partitions=[partition])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])


def epoch_answered(leader_epoch: int) -> offset_for_leader_epoch.OffsetForLeaderEpochResponse:
    """The answer to it."""
    end = offset_for_leader_epoch.EpochEndOffset(partition=1, leader_epoch=leader_epoch, end_offset=8)
    topic = offset_for_leader_epoch.OffsetForLeaderTopicResult(topic="t", partitions=[end])
    return offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=[topic])


VECTORS: list[tuple[Any, int, str]] = [
    *((PRODUCE, version, PRODUCE_BYTES) for version in (0, 1, 2)),
    (produced(), 0, "00000001 0001 74 00000001 00000002 0023 ffffffffffffffff"),
    (produced(throttle_time_ms=9), 1, "00000001 0001 74 00000001 00000002 0023 ffffffffffffffff 00000009"),
    (
        produced(throttle_time_ms=9, log_append_time_ms=3),
        2,
        "00000001 0001 74 00000001 00000002 0023 ffffffffffffffff 0000000000000003 00000009",
    ),
    *(
        (fetching(), v, "ffffffff 000001f4 00000001 00000001 0001 74 00000001 00000003 0000000000000009 00001000")
        for v in (0, 1, 2)
    ),
    (
        fetching(max_bytes=65536),
        3,
        "ffffffff 000001f4 00000001 00010000 00000001 0001 74 00000001 00000003 0000000000000009 00001000",
    ),
    (fetched(), 0, "00000001 0001 74 00000001 00000003 0023 ffffffffffffffff 00000000"),
    *(
        (fetched(throttle_time_ms=9), v, "00000009 00000001 0001 74 00000001 00000003 0023 ffffffffffffffff 00000000")
        for v in (1, 2, 3)
    ),
    (
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t",
                    partitions=[list_offsets.ListOffsetsPartition(partition_index=1, timestamp=-2, max_num_offsets=5)],
                )
            ],
        ),
        0,
        "ffffffff 00000001 0001 74 00000001 00000001 fffffffffffffffe 00000005",
    ),
    (
        list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(
                    name="t",
                    partitions=[
                        list_offsets.ListOffsetsPartitionResponse(partition_index=1, old_style_offsets=[12, 0])
                    ],
                )
            ]
        ),
        0,
        "00000001 0001 74 00000001 00000001 0000 00000002 000000000000000c 0000000000000000",
    ),
    (committing(0), 0, "0001 67 00000001 0001 74 00000001 00000001 0000000000000007 0001 6d"),
    (
        committing(1),
        1,
        "0001 67 00000004 0001 63 00000001 0001 74 00000001 00000001 0000000000000007 0000000000000005 0001 6d",
    ),
    *((committed(), version, "00000001 0001 74 00000001 00000001 0019") for version in (0, 1)),
    (
        offset_fetch.OffsetFetchRequest(
            group_id="g", topics=[offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        ),
        0,
        "0001 67 00000001 0001 74 00000002 00000000 00000001",
    ),
    (
        offset_fetch.OffsetFetchResponse(
            topics=[
                offset_fetch.OffsetFetchResponseTopic(
                    name="t",
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartition(
                            partition_index=1, committed_offset=7, metadata=None, error_code=3
                        )
                    ],
                )
            ]
        ),
        0,
        "00000001 0001 74 00000001 00000001 0000000000000007 ffff 0003",
    ),
    (creating(), 0, CREATE_BYTES),
    (creating(validate_only=True), 1, CREATE_BYTES + "01"),
    (
        create_topics.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult(name="t", error_code=36)]),
        0,
        "00000001 0001 74 0024",
    ),
    (
        create_topics.CreateTopicsResponse(
            topics=[create_topics.CreatableTopicResult(name="t", error_code=36, error_message="no")]
        ),
        1,
        "00000001 0001 74 0024 0002 6e6f",
    ),
    (delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=10), 0, "00000001 0001 74 0000000a"),
    (
        delete_topics.DeleteTopicsResponse(responses=[delete_topics.DeletableTopicResult(name="t", error_code=3)]),
        0,
        "00000001 0001 74 0003",
    ),
    (
        describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
            ]
        ),
        0,
        "00000001 02 0001 74 ffffffff",
    ),
    (described(), 0, "00000000 00000001 0000 ffff 02 0001 74 00000001 0001 6b 0001 76 01 01 00"),
    *((epoch_asked(), version, "00000001 0001 74 00000001 00000001 00000006") for version in (0, 1)),
    (epoch_answered(-1), 0, "00000001 0001 74 00000001 0000 00000001 0000000000000008"),
    (epoch_answered(6), 1, "00000001 0001 74 00000001 0000 00000001 00000006 0000000000000008"),
]


@pytest.mark.parametrize(
    ("message", "version", "data"), VECTORS, ids=[f"{type(m).__name__}-{v}" for m, v, _ in VECTORS]
)
def test_an_older_version_has_these_bytes(message: Any, version: int, data: str) -> None:
    """The message is written as these bytes, and these bytes are read as the message."""
    assert encode_bytes(message, version).hex() == bytes.fromhex(data).hex()
    assert decode(type(message), version, memoryview(bytes.fromhex(data))) == message


def test_every_version_below_kios_lowest_has_a_vector() -> None:
    """Both sides of each API, in each version that the comparison with kio cannot reach."""
    lowest = {"Produce": 3, "Fetch": 4, "ListOffsets": 1, "OffsetCommit": 2, "OffsetFetch": 1, "CreateTopics": 2}
    lowest |= {"DeleteTopics": 1, "DescribeConfigs": 1, "OffsetForLeaderEpoch": 2}
    wanted = {
        (f"{api}{side}", v) for api, end in lowest.items() for side in ("Request", "Response") for v in range(end)
    }
    assert {(type(message).__name__, version) for message, version, _ in VECTORS} == wanted
