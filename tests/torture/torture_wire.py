"""A client that sees what is really on the wire: one socket, one request at a time, error codes untouched.

Foreign clients hide what they retry. Where the suite must know which answer came (was this one acknowledged or
refused?) it asks by itself, in versions of the protocol without tagged fields.
"""

import socket
import struct
from typing import Any, NamedTuple, Self, TypeVar

from fastcrc.crc32 import iscsi as crc32c

from anabranch.broker.wire.apis import API
from anabranch.broker.wire.codec import decode, encode_bytes
from anabranch.broker.wire.headers import write_request_header
from anabranch.broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from anabranch.broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from anabranch.broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from anabranch.broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from anabranch.broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from anabranch.broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from anabranch.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from anabranch.broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from anabranch.broker.wire.schema import Message

VERSIONS = {0: 8, 1: 11, 2: 5, 3: 8, 8: 7, 9: 5, 11: 5, 12: 3, 13: 3, 14: 3, 15: 4, 19: 4, 22: 1}
"""By API key: the newest one without tagged fields, so that the headers are plain."""

ANSWER_S_MAX = 30.0
LOG_END = -1
M = TypeVar("M", bound=Message)


class Batch(NamedTuple):
    """A record batch as it came: what a consumer would be given."""

    base_offset: int
    next_offset: int
    content: bytes
    """From the CRC on: what the broker may not change."""


class Wire:
    """One connection."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Message, answer: type[M]) -> M:
        """Send a request and wait for its answer."""
        self.send(request)
        return self.receive(answer)

    def send(self, request: Message) -> None:
        """Send a request and do not wait."""
        self._correlation += 1
        self._socket.sendall(frame(request, self._correlation))

    def receive(self, answer: type[M]) -> M:
        """Wait for the next answer."""
        (length,) = struct.unpack(">i", self._exactly(4))
        body = self._exactly(length)
        assert int.from_bytes(body[:4], "big") == self._correlation, "an answer to another request"
        return decode(answer, VERSIONS[answer.WIRE.key], memoryview(body), 4)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            data += part
        return bytes(data)

    # What the suite asks.

    def metadata(self) -> MetadataResponse:
        return self.ask(MetadataRequest(topics=None), MetadataResponse)

    def create_topic(self, name: str, partitions: int) -> int:
        """Answer the error code."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        return (
            self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), CreateTopicsResponse).topics[0].error_code
        )

    def producer_id(self) -> int:
        answer = self.ask(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse)
        assert answer.error_code == 0, answer
        return answer.producer_id

    def produce(self, topic: str, partition: int, batch: bytes) -> PartitionProduceResponse:
        """Append one batch with acks=all; the answer may be a refusal."""
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        answer = self.ask(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data]), ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, partition: int, offset: int, bytes_max: int = 1 << 20) -> PartitionData:
        answer = self.ask(fetch_request(topic, partition, offset, bytes_max), FetchResponse)
        return answer.responses[0].partitions[0]

    def log_end(self, topic: str, partition: int) -> int:
        wanted = ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=LOG_END)]
        )
        answer = self.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        assert found.error_code == 0, found
        return found.offset

    def commit(
        self, group: str, topic: str, positions: dict[int, int], member: tuple[int, str, str | None] = (-1, "", None)
    ) -> int:
        """Commit as a generation, member id and instance id, or as nobody; answer the (first) error code."""
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=position)
            for index, position in positions.items()
        ]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=member[0],
            member_id=member[1],
            group_instance_id=member[2],
            topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        answer = self.ask(request, OffsetCommitResponse)
        return next((part.error_code for part in answer.topics[0].partitions if part.error_code), 0)

    def committed(self, group: str, topic: str, partitions: list[int]) -> dict[int, int]:
        """Answer the group's positions; -1 where there is none."""
        wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)
        answer = self.ask(OffsetFetchRequest(group_id=group, topics=[wanted]), OffsetFetchResponse)
        assert answer.error_code == 0, answer
        return {part.partition_index: part.committed_offset for part in answer.topics[0].partitions}


def frame(request: Message, correlation_id: int = 1) -> bytes:
    """Answer a request's bytes, length included."""
    key = request.WIRE.key
    body = write_request_header(key, VERSIONS[key], correlation_id, "torture") + encode_bytes(request, VERSIONS[key])
    return struct.pack(">i", len(body)) + body


def fetch_request(topic: str, partition: int, offset: int, bytes_max: int) -> FetchRequest:
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=bytes_max, topics=[FetchTopic(topic=topic, partitions=[part])]
    )


def batches_of(records: Any) -> list[Batch]:
    """Take fetched bytes apart; every batch must be whole and have the right CRC, whatever was done to the disk."""
    data = bytes(records or b"")
    found, position = [], 0
    while position < len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        end = position + 12 + length
        assert end <= len(data), f"half a batch was served for offset {base_offset}"
        crc, _attributes, last_delta = struct.unpack_from(">IhI", data, position + 17)
        assert crc32c(data[position + 21 : end]) == crc, f"a bad CRC was served for offset {base_offset}"
        found.append(Batch(base_offset, base_offset + last_delta + 1, data[position + 17 : end]))
        position = end
    return found


assert set(VERSIONS) <= set(API), "the suite asks only what the broker serves"
