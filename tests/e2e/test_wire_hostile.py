"""Fault 20: lengths that cannot be, garbage, half a frame and silence, too many connections, clients that never read.

Only the connection that misbehaves is cut; a well-behaved client beside it notices nothing.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from raw_client import RawClient, RawMember, batch_of, fetch_request, produce_request
from waiting import eventually

from anabranch import Broker
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.headers import write_request_header
from anabranch.broker.wire.messages.fetch import FetchRequest
from anabranch.broker.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS_MAX = 12


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[Broker]:
    """A broker whose patience and room are small."""
    with Broker(
        frame_s_max=1,
        idle_s_max=1,
        connections_max=CONNECTIONS_MAX,
        request_bytes_max=100_000,
        group_members_max=2,
        groups_max=100,
        partitions_max=50,
    ) as broker:
        yield broker


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _array_of_2_to_the_31() -> bytes:
    """A Metadata request (version 1) that says it names 2³¹-1 topics."""
    return _framed(write_request_header(3, 1, 1, "x") + (2**31 - 1).to_bytes(4, "big"))


def _nested_arrays() -> bytes:
    """A Fetch (version 4) of one topic that says it has 2³¹-1 partitions."""
    head = write_request_header(1, 4, 1, "x")
    return _framed(head + bytes(17) + (1).to_bytes(4, "big") + b"\0\1t" + (2**31 - 1).to_bytes(4, "big"))


HOSTILE = {
    "a negative length": b"\xff\xff\xff\xff" + b"x" * 100,
    "the most negative length": b"\x80\x00\x00\x00",
    "a length of zero": bytes(4),
    "a length of 2 GB": b"\x7f\xff\xff\xff" + b"x" * 100,
    "an array of 2^31 entries": _array_of_2_to_the_31(),
    "nested arrays": _nested_arrays(),
    "an API that is not served": _framed(write_request_header(999, 0, 1, "x")),
    "a negative API key": _framed(write_request_header(-1, 0, 1, "x")),
    "a version that is not served": _framed(write_request_header(3, 999, 1, "x") + bytes(10)),
    "a header that ends early": _framed(b"\0\3\0"),
    "a client id longer than the frame": _framed(b"\0\3\0\1\0\0\0\1\x7f\xff" + b"x" * 10),
    "a body that ends early": _framed(write_request_header(3, 1, 1, "x") + b"\0\0"),
    "text that is not UTF-8": _framed(write_request_header(3, 1, 1, "x") + b"\0\0\0\1\0\2\xff\xfe"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f40303") + b"x" * 300,
    "noise": random.Random(20).randbytes(4096),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_bytes_that_make_no_sense_cut_only_their_own_connection(
    anabranch_broker: Broker, anabranch_topic: str, data: bytes
) -> None:
    """The sender is cut; a client that was connected before goes on, and so does a new one."""
    with RawClient(anabranch_broker.bootstrap) as good, RawClient(anabranch_broker.bootstrap) as bad:
        good.produce(anabranch_topic, batch_of([b"before"]))
        bad.send_bytes(data)
        bad.socket.shutdown(socket.SHUT_WR) if data == HOSTILE["noise"] else None
        assert bad.is_cut()
        good.produce(anabranch_topic, batch_of([b"after"]))
        with RawClient(anabranch_broker.bootstrap) as another:
            assert [record.value for record in another.read_all(anabranch_topic)] == [b"before", b"after"]


def test_good_requests_before_the_bad_one_are_carried_out(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """What came whole and in order before the nonsense is appended, in the same write to the socket or not."""
    with RawClient(anabranch_broker.bootstrap) as client, RawClient(anabranch_broker.bootstrap) as reader:
        client.send_bytes(client.frame(produce_request(anabranch_topic, batch_of([b"good"])), 9) + b"\xff" * 8)
        assert client.is_cut()
        assert [record.value for record in reader.read_all(anabranch_topic)] == [b"good"]


def test_a_frame_may_come_byte_by_byte(anabranch_broker: Broker) -> None:
    """A slow network is not an attack: a request in one-byte pieces is answered like any other."""
    with RawClient(anabranch_broker.bootstrap) as client:
        for byte in client.frame(MetadataRequest(topics=[]), 12):
            client.send_bytes(bytes([byte]))
        assert client.receive(MetadataRequest, 12).brokers


def test_half_a_frame_and_then_silence_is_cut(strict_broker: Broker) -> None:
    """After frame_s_max without progress the connection is closed: it holds memory for a request that never ends."""
    with RawClient(strict_broker.bootstrap) as client:
        client.send_bytes(client.frame(MetadataRequest(topics=[]), 12)[:-1])
        assert client.is_cut()


def test_an_idle_connection_is_closed(strict_broker: Broker) -> None:
    """After idle_s_max without a request; one that waits in a long poll of that length is not idle."""
    with RawClient(strict_broker.bootstrap) as idle, RawClient(strict_broker.bootstrap) as polling:
        polling.create_topic("long-poll")
        polling.send(fetch_request("long-poll", 0, wait_ms=2600), 12)
        assert idle.is_cut()
        assert polling.receive(FetchRequest, 12).responses[0].partitions[0].error_code == 0


def test_a_client_that_never_reads_is_cut(strict_broker: Broker) -> None:
    """Its answers must not pile up: the broker stops taking its requests, and cuts it when nothing moves."""
    with RawClient(strict_broker.bootstrap) as client:
        client.create_topic("unread")
        for _ in range(20):
            client.produce("unread", batch_of([b"x" * 90_000]))
        client.socket.setblocking(False)
        frame = client.frame(fetch_request("unread", 0, bytes_max=1 << 30), 12)
        sent = 0

        def cut() -> bool:
            nonlocal sent
            try:
                sent += client.socket.send(frame)
            except BlockingIOError:
                return False
            except ConnectionError:
                return True
            return False

        eventually(cut, "the client that never reads is cut")
        assert sent < 10_000_000, "the broker does not take requests whose answers it cannot send"


def test_connections_beyond_the_limit_are_refused(strict_broker: Broker) -> None:
    """One more than connections_max is closed at once; when one goes, the next may come."""

    def asks(client: RawClient) -> bool:
        try:
            return bool(client.ask(MetadataRequest(topics=[]), 12).brokers)
        except ConnectionError:
            return False

    with ExitStack() as stack:

        def connect() -> RawClient:
            return stack.enter_context(RawClient(strict_broker.bootstrap))

        def fill() -> list[RawClient]:
            """Others of this module may just be going: try until all places are ours."""
            found = [client for client in (connect() for _ in range(CONNECTIONS_MAX)) if asks(client)]
            if len(found) < CONNECTIONS_MAX:
                for client in found:
                    client.close()
                return []
            return found

        inside = eventually(fill, "all places are taken by this test")
        outside = connect()
        assert not asks(outside)
        assert all(asks(client) for client in inside)
        inside.pop().close()
        eventually(lambda: asks(connect()), "there is room again")


def test_a_request_larger_than_allowed_is_cut(strict_broker: Broker) -> None:
    """request_bytes_max is a limit of the connection, not of memory: nothing is set aside for the claim."""
    with RawClient(strict_broker.bootstrap) as client:
        client.create_topic("small-requests")
        assert client.produce("small-requests", batch_of([b"x" * 90_000])).error_code == 0
        client.send_bytes((100_001).to_bytes(4, "big"))
        assert client.is_cut()


def test_a_group_has_no_more_members_than_allowed(strict_broker: Broker) -> None:
    """GROUP_MAX_SIZE_REACHED for one more than group_members_max; those who are in stay in."""
    with ExitStack() as stack:

        def member() -> RawMember:
            return RawMember(stack.enter_context(RawClient(strict_broker.bootstrap)), "crowded")

        first, second, third = member(), member(), member()
        first.join()
        second.begin_join()
        eventually(lambda: first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the first hears of the second")
        first.join()
        assert second.end_join().error_code == 0
        refused = third.client.ask(third.join_request(), 9)
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (first.heartbeat(), second.heartbeat()) == (0, 0)


def test_topics_have_no_more_partitions_than_allowed(strict_broker: Broker) -> None:
    """INVALID_PARTITIONS when all topics together would have more than partitions_max; nothing is made."""
    with RawClient(strict_broker.bootstrap) as client:
        assert client.create_topic("too-wide", 51).error_code == ErrorCode.INVALID_PARTITIONS
        assert client.create_topic("too-wide", 2_000_000_000).error_code == ErrorCode.INVALID_PARTITIONS
        assert client.create_topic("none", 0).error_code == ErrorCode.INVALID_PARTITIONS
        assert client.describe_topic("too-wide").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../escape", "a b", "ä", "x" * 250, "@catalog.json", "a\0b"])
def test_a_topic_name_that_could_be_a_path_is_refused(anabranch_broker: Broker, name: str) -> None:
    """INVALID_TOPIC_EXCEPTION on CreateTopics and on Metadata that would create it."""
    with RawClient(anabranch_broker.bootstrap) as client:
        assert client.create_topic(name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert client.describe_topic(name, may_create=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
