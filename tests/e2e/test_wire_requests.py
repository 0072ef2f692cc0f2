"""Requests frame by frame, as no library would send them: versions, order of answers, batches, sequences."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import pytest
from raw_client import RawClient, batch_of, batches, fetch_request, produce_request

from anabranch import Broker
from anabranch.broker.wire.apis import API
from anabranch.broker.wire.batch import read_header, write_crc
from anabranch.broker.wire.codec import decode
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.headers import write_request_header
from anabranch.broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.broker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from anabranch.broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.broker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from anabranch.broker.wire.messages.describe_groups import DescribeGroupsRequest
from anabranch.broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.broker.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.broker.wire.messages.heartbeat import HeartbeatRequest
from anabranch.broker.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.broker.wire.messages.list_groups import ListGroupsRequest
from anabranch.broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from anabranch.broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from anabranch.broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.broker.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anabranch.broker.wire.schema import Message


@pytest.fixture
def client(anabranch_broker: Broker) -> Iterator[RawClient]:
    with RawClient(anabranch_broker.bootstrap) as connected:
        yield connected


@pytest.fixture(scope="module")
def durable_broker() -> Iterator[Broker]:
    """A broker whose acks=all waits for the disk, so that answers become ready out of order."""
    with Broker(flush="always") as broker:
        yield broker


# Every version of everything


def _requests(topic: str, topic_id: bytes) -> dict[int, Callable[[int], Message]]:
    """A minimal valid request for each API, by version."""
    batch = bytes(batch_of([b"x"]))
    group = f"group-of-{topic}"
    by_name = [FetchTopic(topic=topic, topic_id=topic_id, partitions=[FetchPartition(partition_max_bytes=1000)])]
    produced = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=1, records=batch)])
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1, max_num_offsets=1)])
    committed = OffsetCommitRequestTopic(name=topic, partitions=[OffsetCommitRequestPartition(committed_metadata="m")])
    in_group = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    fetched = OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    epochs = OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(leader_epoch=1)])
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
    return {
        0: lambda _: ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[produced]),
        1: lambda _: FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=by_name),
        2: lambda _: ListOffsetsRequest(topics=[asked]),
        3: lambda _: MetadataRequest(topics=[MetadataRequestTopic(name=topic)]),
        8: lambda _: OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[committed]),
        9: lambda _: OffsetFetchRequest(groups=[in_group], group_id=group, topics=[fetched]),
        10: lambda _: FindCoordinatorRequest(key=group, coordinator_keys=[group]),
        11: lambda version: JoinGroupRequest(
            group_id=f"{group}-{version}",
            session_timeout_ms=1000,
            rebalance_timeout_ms=1000,
            protocol_type="consumer",
            protocols=protocols,
        ),
        12: lambda _: HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody"),
        13: lambda _: LeaveGroupRequest(
            group_id=group, member_id="nobody", members=[MemberIdentity(member_id="nobody")]
        ),
        14: lambda _: SyncGroupRequest(group_id=group, generation_id=1, member_id="nobody"),
        15: lambda _: DescribeGroupsRequest(groups=[group]),
        16: lambda _: ListGroupsRequest(),
        18: lambda _: ApiVersionsRequest(client_software_name="raw", client_software_version="1"),
        19: lambda version: CreateTopicsRequest(
            topics=[CreatableTopic(name=f"{topic}-{version}", num_partitions=1, replication_factor=1)]
        ),
        20: lambda version: DeleteTopicsRequest(
            topics=[DeleteTopicState(name=f"{topic}-{version}")], topic_names=[f"{topic}-{version}"]
        ),
        21: lambda _: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=2, offset=-1)])]
        ),
        22: lambda _: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        23: lambda _: OffsetForLeaderEpochRequest(topics=[epochs]),
        32: lambda _: DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True),
        37: lambda version: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=5 + version, assignments=None)]
        ),
    }


def _expected_codes(key: int, version: int) -> set[int]:
    if (key == 0 and version < 3) or (key == 1 and version < 4):
        return {ErrorCode.UNSUPPORTED_VERSION}
    if key == 11 and version >= 4:
        return {ErrorCode.MEMBER_ID_REQUIRED}
    if key in {12, 13, 14}:
        return {ErrorCode.UNKNOWN_MEMBER_ID}
    return set()


def _error_codes(value: Any) -> set[int]:
    """All error codes in an answer, but for success."""
    codes: set[int] = set()
    if isinstance(value, list):
        codes.update(*map(_error_codes, value))
    elif is_dataclass(value):
        for field in fields(value):
            inner = getattr(value, field.name)
            codes |= {inner} if field.name == "error_code" else _error_codes(inner)
    return codes - {0}


def test_every_advertised_version_of_every_api_is_answered(client: RawClient, anabranch_topic: str) -> None:
    """What ApiVersions lists can be asked in each of its versions, and the answer can be read in that version."""
    requests = _requests(anabranch_topic, client.describe_topic(anabranch_topic).topic_id)
    listed = client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1")).api_keys
    assert {entry.api_key for entry in listed} == set(requests) == set(API)
    # Topics must exist to be deleted: CreateTopics (19) goes before DeleteTopics (20).
    for entry in sorted(listed, key=lambda entry: entry.api_key):
        assert entry.min_version == 0, "librdkafka before 2.11.1 matches exact versions: ranges start at 0"
        for version in range(entry.min_version, entry.max_version + 1):
            answer = client.ask(requests[entry.api_key](version), version)
            expected = _expected_codes(entry.api_key, version)
            assert _error_codes(answer) == expected, (API[entry.api_key].name, version, answer)


def test_an_unknown_version_of_api_versions_is_answered_with_error_35_in_version_0(client: RawClient) -> None:
    """KIP-511: a client that is newer than the broker learns in an answer it can read what the broker speaks."""
    body = write_request_header(18, 99, 7, "new") + b"\x04new\x022\x00 and what version 99 may bring"
    client.send_bytes(len(body).to_bytes(4, "big") + body)
    frame = client.receive_frame()
    assert frame[:4] == (7).to_bytes(4, "big")
    answer = decode(ApiVersionsResponse, 0, memoryview(frame), 4)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {entry.api_key: entry.max_version for entry in answer.api_keys}[18] == API[18].version_max


def test_bytes_behind_the_end_of_a_request_are_ignored(client: RawClient) -> None:
    """librdkafka 2.16 leaves three zero bytes in Metadata 13 for all topics, so its flags stand behind the end.

    Kafka ignores what follows the fields it knows. A broker that cuts the connection instead is unreachable to every
    `list_topics()` of confluent-kafka.
    """
    as_sent = write_request_header(3, 13, 1, "rdkafka") + bytes.fromhex("00 000000 01 00 00")
    client.send_bytes(len(as_sent).to_bytes(4, "big") + as_sent)
    answer = client.receive(MetadataRequest, 13, correlation_id=1)
    assert "__consumer_offsets" in {topic.name for topic in answer.topics}


def test_old_message_sets_are_refused_per_partition_and_the_connection_goes_on(
    client: RawClient, anabranch_topic: str
) -> None:
    """Produce below 3 and Fetch below 4 are advertised, answered UNSUPPORTED_VERSION as Kafka 4 does, and harmless."""
    for version in range(3):
        refused = client.produce(anabranch_topic, batch_of([b"old"]), version=version)
        assert (refused.error_code, refused.base_offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    for version in range(4):
        data = client.ask(fetch_request(anabranch_topic, 0), version).responses[0].partitions[0]
        assert data.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.read_all(anabranch_topic) == []


# Order of answers


def test_pipelined_requests_are_answered_in_request_order(durable_broker: Broker) -> None:
    """Produces that wait for the disk come before a Metadata that was ready at once, which came after them."""
    with RawClient(durable_broker.bootstrap) as client:
        client.create_topic("pipelined", 3)
        expected: list[tuple[int, type[Message], int]] = []
        stream = bytearray()
        for number in range(200):
            request = produce_request("pipelined", batch_of([b"%d" % number]), partition=number % 3)
            stream += client.frame(request, 9)
            expected.append((client._sent, ProduceRequest, 9))
            if number % 4 == 3:
                stream += client.frame(MetadataRequest(topics=[]), 12)
                expected.append((client._sent, MetadataRequest, 12))
        client.send_bytes(bytes(stream))
        answers = [client.receive(kind, version, correlation_id) for correlation_id, kind, version in expected]
        assert [_error_codes(answer) for answer in answers] == [set()] * len(expected)
        values = [[record.value for record in client.read_all("pipelined", partition=part)] for part in range(3)]
        assert values == [[b"%d" % number for number in range(part, 200, 3)] for part in range(3)]


def test_a_long_poll_does_not_overtake_and_is_not_overtaken(client: RawClient, anabranch_topic: str) -> None:
    """A request behind a waiting fetch on the same connection is answered after it."""
    client.send(fetch_request(anabranch_topic, 0, wait_ms=50), 12)
    first = client._sent
    client.send(MetadataRequest(topics=[]), 12)
    assert client.receive(FetchRequest, 12, first).responses[0].partitions[0].records == b""
    client.receive(MetadataRequest, 12, first + 1)


def test_a_waiting_fetch_is_answered_as_soon_as_there_are_records(
    client: RawClient, anabranch_broker: Broker, anabranch_topic: str
) -> None:
    """A long poll waits on the partition: its answer has the record although its time is not nearly up."""
    client.send(fetch_request(anabranch_topic, 0, partition=2, wait_ms=60_000), 12)
    with RawClient(anabranch_broker.bootstrap) as writer:
        writer.produce(anabranch_topic, batch_of([b"news"]), partition=2)
    data = client.receive(FetchRequest, 12).responses[0].partitions[0]
    assert read_header(data.records).record_count == 1


def test_a_waiting_fetch_is_answered_when_its_topic_is_deleted(
    client: RawClient, anabranch_broker: Broker, anabranch_topic: str
) -> None:
    """It does not wait out its time for records that can never come."""
    client.send(fetch_request(anabranch_topic, 0, wait_ms=60_000), 12)
    with RawClient(anabranch_broker.bootstrap) as administrator:
        administrator.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=anabranch_topic)]))
    data = client.receive(FetchRequest, 12).responses[0].partitions[0]
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_acks_0_gets_no_answer_and_is_appended(client: RawClient, anabranch_topic: str) -> None:
    """The next answer on the connection is that of the next request, and the record is there."""
    client.send(produce_request(anabranch_topic, batch_of([b"unheard"]), acks=0), 9)
    assert [record.value for record in client.read_all(anabranch_topic)] == [b"unheard"]


# Batches


def _spoiled(position: int, byte: int) -> bytearray:
    batch = batch_of([b"good", b"bad"])
    batch[position] ^= byte
    return batch


def _with_crc(batch: bytearray) -> bytearray:
    write_crc(batch)
    return batch


def _with_field(position: int, data: bytes) -> bytearray:
    """A batch with a field of its header changed and a CRC that fits."""
    batch = batch_of([b"good", b"bad"])
    batch[position : position + len(data)] = data
    return _with_crc(batch)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        pytest.param(_spoiled(-1, 1), ErrorCode.CORRUPT_MESSAGE, id="a flipped bit in a record"),
        pytest.param(_spoiled(17, 0x80), ErrorCode.CORRUPT_MESSAGE, id="a flipped bit in the CRC"),
        pytest.param(batch_of([b"cut"])[:-1], ErrorCode.CORRUPT_MESSAGE, id="a byte is missing"),
        pytest.param(batch_of([b"cut"])[:30], ErrorCode.CORRUPT_MESSAGE, id="half a header"),
        pytest.param(b"", ErrorCode.CORRUPT_MESSAGE, id="no batch at all"),
        pytest.param(_spoiled(16, 3), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, id="magic 1"),
        pytest.param(_spoiled(16, 5), ErrorCode.CORRUPT_MESSAGE, id="magic 7"),
        pytest.param(_with_field(23, (5).to_bytes(4, "big")), ErrorCode.INVALID_RECORD, id="offsets with holes"),
        pytest.param(_with_field(23, b"\xff\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE, id="a negative last offset"),
        pytest.param(batch_of([b"a"]) + batch_of([b"b"]), ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(_with_field(21, b"\x00\x05"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="compression 5"),
        pytest.param(batch_of([b"a"], is_transactional=True), ErrorCode.INVALID_TXN_STATE, id="transactional"),
        pytest.param(batch_of([b"a"], is_control=True), ErrorCode.INVALID_RECORD, id="control"),
        pytest.param(batch_of([b"a"], producer_id=1), ErrorCode.INVALID_RECORD, id="a producer id without a sequence"),
    ],
)
def test_a_batch_that_is_not_one_good_batch_is_refused(
    client: RawClient, anabranch_topic: str, batch: bytearray, code: ErrorCode
) -> None:
    """The client gets Kafka's code, nothing is appended, and a good batch after it has the offset that comes next."""
    client.produce(anabranch_topic, batch_of([b"before"]))
    refused = client.produce(anabranch_topic, batch)
    assert (refused.error_code, refused.base_offset) == (code, -1)
    assert client.produce(anabranch_topic, batch_of([b"after"])).base_offset == 1
    assert [record.value for record in client.read_all(anabranch_topic)] == [b"before", b"after"]


def test_one_bad_partition_does_not_stop_the_others_of_a_request(client: RawClient, anabranch_topic: str) -> None:
    """Produce is answered per partition."""
    parts = [
        PartitionProduceData(index=0, records=bytes(batch_of([b"good"]))),
        PartitionProduceData(index=1, records=bytes(_spoiled(-1, 1))),
        PartitionProduceData(index=99, records=bytes(batch_of([b"nowhere"]))),
        PartitionProduceData(index=2, records=bytes(batch_of([b"good"]))),
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=anabranch_topic, partition_data=parts)]
    )
    results = client.ask(request, 9).responses[0].partition_responses
    assert [(result.index, result.error_code) for result in results] == [(0, 0), (1, 2), (99, 3), (2, 0)]


def test_a_fetch_inside_a_batch_gets_the_whole_batch(client: RawClient, anabranch_topic: str) -> None:
    """Clients skip what they did not ask for; the bytes are the batch as it was sent, with offset and epoch set."""
    sent = batch_of([b"a", b"b", b"c"], compression="zstd")
    client.produce(anabranch_topic, batch_of([b"first"]))
    client.produce(anabranch_topic, sent)
    (found,) = batches(client.fetch(anabranch_topic, 3).records)
    assert read_header(found).base_offset == 1
    assert found[16:] == sent[16:], "everything behind the leader epoch is as it came"
    assert read_header(found).leader_epoch == client.describe_topic(anabranch_topic).partitions[0].leader_epoch


def test_a_batch_larger_than_the_fetch_allows_is_still_given(client: RawClient, anabranch_topic: str) -> None:
    """KIP-74: however small the limits, the first partition with data answers a batch, or a consumer would stop."""
    client.produce(anabranch_topic, batch_of([b"x" * 10_000]))
    assert read_header(client.fetch(anabranch_topic, 0, bytes_max=1).records).record_count == 1


def test_an_offset_out_of_range_is_answered_with_the_range(client: RawClient, anabranch_topic: str) -> None:
    """Beyond the end is OFFSET_OUT_OF_RANGE; the end itself is an empty answer."""
    client.produce(anabranch_topic, batch_of([b"a", b"b"]))
    at_end = client.fetch(anabranch_topic, 2)
    assert (at_end.error_code, at_end.records, at_end.high_watermark) == (0, b"", 2)
    assert client.fetch(anabranch_topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.fetch(anabranch_topic, -5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_leader_epoch_of_another_time_is_fenced(client: RawClient, anabranch_topic: str) -> None:
    """KIP-320: an older epoch is FENCED, a newer one UNKNOWN; in Fetch, ListOffsets and OffsetForLeaderEpoch alike."""
    epoch = client.describe_topic(anabranch_topic).partitions[0].leader_epoch
    for asked, code in ((epoch, 0), (epoch - 1, 74), (epoch + 1, 75)):
        assert client.fetch(anabranch_topic, 0, epoch=asked).error_code == code
        offsets = ListOffsetsPartition(timestamp=-1, current_leader_epoch=asked)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=anabranch_topic, partitions=[offsets])])
        assert client.ask(request, 7).topics[0].partitions[0].error_code == code
        part = OffsetForLeaderPartition(leader_epoch=epoch, current_leader_epoch=asked)
        end = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=anabranch_topic, partitions=[part])])
        assert client.ask(end).topics[0].partitions[0].error_code == code


# Sequences


def test_a_repeated_sequence_is_answered_as_success_with_its_first_offset(
    client: RawClient, anabranch_topic: str
) -> None:
    """KIP-98: a producer that never saw the acknowledgement sends again and gets it; the log has the records once."""
    producer = client.producer_id()
    batches_sent = [
        batch_of([b"%d" % number] * 2, producer_id=producer, producer_epoch=0, base_sequence=2 * number)
        for number in range(5)
    ]
    assert [client.produce(anabranch_topic, batch).base_offset for batch in batches_sent] == [0, 2, 4, 6, 8]
    for number, batch in enumerate(batches_sent):
        again = client.produce(anabranch_topic, batch)
        assert (again.error_code, again.base_offset) == (0, 2 * number)
    assert len(client.read_all(anabranch_topic)) == 10


def test_a_sequence_out_of_order_is_refused(client: RawClient, anabranch_topic: str) -> None:
    """A gap means that a batch is missing: nothing may be appended until the producer has sent it again."""
    producer = client.producer_id()

    def send(sequence: int, epoch: int = 0) -> int:
        batch = batch_of([b"x"], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        return int(client.produce(anabranch_topic, batch).error_code)

    assert send(0) == 0
    assert send(2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(1) == 0
    assert send(2) == 0
    assert send(5, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch starts at 0"
    assert send(0, epoch=1) == 0
    assert send(3, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(client.read_all(anabranch_topic)) == 4


def test_sequences_go_on_at_0_after_the_largest_number(client: RawClient, anabranch_topic: str) -> None:
    """After 2³¹-1 comes 0; a batch may span it."""
    producer = client.producer_id()
    spanning = batch_of([b"a", b"b", b"c"], producer_id=producer, producer_epoch=0, base_sequence=2**31 - 2)
    following = batch_of([b"d"], producer_id=producer, producer_epoch=0, base_sequence=1)
    assert [client.produce(anabranch_topic, batch).error_code for batch in (spanning, following)] == [0, 0]
    again = client.produce(anabranch_topic, spanning)
    assert (again.error_code, again.base_offset) == (0, 0)


def test_transactions_are_refused_by_name(client: RawClient, anabranch_topic: str) -> None:
    """What is not served yet is refused where it begins, and nothing is appended."""
    assert client.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)).error_code != 0
    assert client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])).coordinators[0].error_code != 0
    request = produce_request(anabranch_topic, batch_of([b"x"]))
    request.transactional_id = "t"
    assert client.ask(request, 9).responses[0].partition_responses[0].error_code != 0
    assert client.read_all(anabranch_topic) == []


def test_the_brokers_own_topic_cannot_be_written_by_clients(client: RawClient) -> None:
    """A client that could write to __consumer_offsets could forge every group's progress."""
    client.commit("somebody", client.describe_topic("__consumer_offsets").name, 0)
    refused = client.produce("__consumer_offsets", batch_of([b"forged"]))
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_topic_named_many_times_is_described_once(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """A request of one kilobyte that named a large topic 200 times was answered with megabytes, made on the loop."""
    with RawClient(anabranch_broker.bootstrap) as client:
        named = [MetadataRequestTopic(name=anabranch_topic)] * 200
        assert len(client.ask(MetadataRequest(topics=named)).topics) == 1


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_an_unknown_topic_id_is_answered_in_every_version(anabranch_broker: Broker, version: int) -> None:
    """The name is nullable from version 12 only; before it, the connection was cut."""
    with RawClient(anabranch_broker.bootstrap) as client:
        (topic,) = client.ask(
            MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"x" * 16, name=None)]), version
        ).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_refused_append_without_acknowledgement_closes_the_connection(anabranch_broker: Broker) -> None:
    """acks=0 has no answer for the error; Kafka closes, so that the producer asks for metadata again."""
    with RawClient(anabranch_broker.bootstrap) as client:
        client.send(produce_request("no.such.topic", batch_of([b"x"]), acks=0))
        assert client.is_cut()
