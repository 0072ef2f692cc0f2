"""A Kafka client that is nothing but a socket and our codec: it sends what no library would, and shows every answer.

`RawMember` is a consumer group member on top of it that does only what it is told to: it can fall silent, come back
under a stale id, or lead and never assign.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from anabranch.broker.wire.apis import API, API_VERSIONS_KEY
from anabranch.broker.wire.batch import read_header
from anabranch.broker.wire.codec import decode, encode_bytes
from anabranch.broker.wire.headers import write_request_header
from anabranch.broker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from anabranch.broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.broker.wire.messages.heartbeat import HeartbeatRequest
from anabranch.broker.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from anabranch.broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
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
    OffsetFetchRequestTopics,
)
from anabranch.broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from anabranch.broker.wire.records import Record, build_batch, iterate_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch.broker.wire.schema import Message

ANSWER_S_MAX = 20.0
"""How long an answer may take before a test fails; no test waits for it to pass."""


class RawClient:
    """One connection. Requests get correlation ids 1, 2, 3…; an answer must have the expected one."""

    def __init__(self, bootstrap: str, client_id: str | None = "raw") -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close without a word."""
        self.socket.close()

    # Frames

    def frame(self, request: Message, version: int) -> bytes:
        """Give a request as it stands on the wire, with the next correlation id."""
        self._sent += 1
        head = write_request_header(request.WIRE.key, version, self._sent, self._client_id)
        body = head + encode_bytes(request, version)
        return len(body).to_bytes(4, "big") + body

    def send(self, request: Message, version: int | None = None) -> int:
        """Send a request and give its correlation id."""
        version = API[request.WIRE.key].version_max if version is None else version
        self.socket.sendall(self.frame(request, version))
        return self._sent

    def send_bytes(self, data: bytes) -> None:
        """Send anything at all."""
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        """Give the next answer without its length."""
        length = int.from_bytes(self._receive_exactly(4), "big", signed=True)
        return self._receive_exactly(length)

    def receive(self, request: type[Message], version: int | None = None, correlation_id: int | None = None) -> Any:
        """Give the next answer, decoded as one to this kind of request."""
        api = API[request.WIRE.key]
        version = api.version_max if version is None else version
        frame = self.receive_frame()
        expected = self._sent if correlation_id is None else correlation_id
        assert int.from_bytes(frame[:4], "big") == expected, "answers come in the order of their requests"
        is_tagged = version >= api.flexible_from and api.key != API_VERSIONS_KEY
        return decode(api.response, version, memoryview(frame), 5 if is_tagged else 4)

    def ask(self, request: Message, version: int | None = None) -> Any:
        """Send a request and give its answer."""
        self.send(request, version)
        return self.receive(type(request), version)

    def is_cut(self) -> bool:
        """Wait until the broker closes the connection; answers that come before are skipped."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def has_answer(self) -> bool:
        """Say whether anything has come that was not received yet, without waiting."""
        self.socket.setblocking(False)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self.socket.settimeout(ANSWER_S_MAX)

    def _receive_exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self.socket.recv(size - len(received))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            received += piece
        return bytes(received)

    # What tests ask most often

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Any:
        """Create a topic and give the result."""
        listed = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=listed)
        return self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000)).topics[0]

    def describe_topic(self, name: str, *, may_create: bool = False) -> Any:
        """Give the topic's metadata."""
        wanted = [MetadataRequestTopic(name=name)]
        return self.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=may_create)).topics[0]

    def produce(
        self, topic: str, batch: bytes | bytearray, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> Any:
        """Append a batch and give the partition's result."""
        answer = self.ask(produce_request(topic, batch, partition=partition, acks=acks), version)
        return answer.responses[0].partition_responses[0]

    def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        bytes_max: int = 1 << 20,
        wait_ms: int = 0,
        epoch: int = -1,
    ) -> Any:
        """Fetch by name (version 12) and give the partition's result."""
        return (
            self.ask(fetch_request(topic, offset, partition, bytes_max, wait_ms, epoch), 12).responses[0].partitions[0]
        )

    def read_all(self, topic: str, *, partition: int = 0, offset: int = 0) -> list[Record]:
        """Give all records of a partition from an offset on."""
        records: list[Record] = []
        while True:
            data = self.fetch(topic, offset, partition=partition)
            assert data.error_code == 0, data
            if not data.records:
                return records
            for batch in batches(data.records):
                records += [record for record in iterate_records(batch) if record.offset >= offset]
                offset = read_header(batch).next_offset

    def offset_for(self, topic: str, timestamp: int, *, partition: int = 0, version: int = 7) -> Any:
        """Ask ListOffsets one question and give the partition's result."""
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        return self.ask(request, version).topics[0].partitions[0]

    def producer_id(self) -> int:
        """Ask for a producer id."""
        answer = self.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
        assert answer.error_code == 0
        return int(answer.producer_id)

    def commit(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        metadata: str | None = "",
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> int:
        """Commit one partition's position and give the error code."""
        part = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        return int(self.ask(request).topics[0].partitions[0].error_code)

    def committed(self, group: str, topic: str, partition: int = 0) -> tuple[int, str | None]:
        """Give the committed position and its metadata; (-1, …) when there is none."""
        wanted = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        )
        answer = self.ask(OffsetFetchRequest(groups=[wanted], require_stable=True), 8).groups[0]
        assert answer.error_code == 0, answer
        part = answer.topics[0].partitions[0]
        assert part.error_code == 0, part
        return part.committed_offset, part.metadata


def produce_request(topic: str, batch: bytes | bytearray, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """Make a request that appends one batch."""
    data = PartitionProduceData(index=partition, records=bytes(batch))
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(
    topic: str, offset: int, partition: int = 0, bytes_max: int = 1 << 20, wait_ms: int = 0, epoch: int = -1
) -> FetchRequest:
    """Make a request that reads one partition."""
    part = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max, current_leader_epoch=epoch
    )
    topics = [FetchTopic(topic=topic, partitions=[part])]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=bytes_max, topics=topics)


def batch_of(values: Iterable[bytes], *, timestamp: int = 1000, **header: Any) -> bytearray:
    """Build a batch of keyless records, a millisecond apart."""
    return build_batch(
        [Record(timestamp=timestamp + number, value=value) for number, value in enumerate(values)], **header
    )


def batches(data: bytes | memoryview) -> list[memoryview]:
    """Cut fetched bytes into whole batches."""
    found, view, position = [], memoryview(data), 0
    while position < len(view):
        size = read_header(view, position).size
        found.append(view[position : position + size])
        position += size
    return found


@dataclass
class RawMember:
    """A member of a group on a connection of its own, which does nothing unasked."""

    client: RawClient
    group: str
    member_id: str = ""
    instance_id: str | None = None
    session_ms: int = 10_000
    rebalance_ms: int = 10_000
    protocols: tuple[str, ...] = ("range",)
    generation: int = field(default=-1, init=False)

    def join_request(self) -> JoinGroupRequest:
        """Make the request that joins as this member."""
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=name.encode()) for name in self.protocols],
        )

    def begin_join(self, version: int = 9) -> None:
        """Send a join; under KIP-394 (versions 4 and up) a dynamic newcomer learns its id first."""
        if not self.member_id and self.instance_id is None and version >= 4:
            told = self.client.ask(self.join_request(), version)
            assert told.error_code == 79, told
            self.member_id = told.member_id
        self.client.send(self.join_request(), version)

    def end_join(self, version: int = 9) -> JoinGroupResponse:
        """Wait for the answer to the join."""
        answer: JoinGroupResponse = self.client.receive(JoinGroupRequest, version)
        if answer.error_code == 0:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def join(self, version: int = 9) -> JoinGroupResponse:
        """Join and wait for the generation."""
        self.begin_join(version)
        return self.end_join(version)

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupResponse:
        """Ask for the assignment; a leader brings it."""
        self.begin_sync(assignments)
        return self.end_sync()

    def begin_sync(self, assignments: Mapping[str, bytes] | None = None) -> None:
        """Send a sync."""
        listed = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocols[0],
            assignments=listed,
        )
        self.client.send(request)

    def end_sync(self) -> SyncGroupResponse:
        """Wait for the answer to the sync."""
        answer: SyncGroupResponse = self.client.receive(SyncGroupRequest)
        return answer

    def heartbeat(self) -> int:
        """Say that it lives, and give the error code."""
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return int(self.client.ask(request).error_code)

    def commit(self, topic: str, offset: int) -> int:
        """Commit as this member, and give the error code."""
        return self.client.commit(
            self.group,
            topic,
            offset,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
        )

    def leave(self, version: int = 5) -> int:
        """Leave, and give the error code."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=self.group, members=[identity], member_id=self.member_id)
        answer = self.client.ask(request, version)
        return int(answer.error_code or (answer.members[0].error_code if answer.members else 0))
