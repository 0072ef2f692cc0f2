"""What a restart finds, clean or after kill -9 (fault 18): topics, records, offsets, members, sequences, identities."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from group_members import MEMBERS, shared_out
from raw_client import RawClient, RawMember, batch_of
from restartable_broker import RestartableBroker
from waiting import eventually

from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from anabranch.broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.broker.wire.messages.describe_groups import DescribeGroupsRequest
from anabranch.broker.wire.messages.metadata import MetadataRequest
from anabranch.broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# kafka-python leaves sockets behind that could not connect while the broker was away.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

each_end = pytest.mark.parametrize("how", ["clean", "kill -9"])


@pytest.fixture(autouse=True)
def _collect_sockets_left_behind() -> Iterator[None]:
    """Collect them here, where they are expected, and not during whichever test comes next."""
    yield
    gc.collect()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RestartableBroker]:
    with RestartableBroker(tmp_path / "data") as running:
        yield running


@each_end
def test_topics_and_records_are_found_again(broker: RestartableBroker, how: str) -> None:
    """Names, ids, configs, partitions, records with their offsets, the cluster's id, log starts that were raised."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("kept", 2, {"max.message.bytes": "5000", "segment.bytes": "1024"})
        for number in range(20):
            client.produce("kept", batch_of([b"%d" % number] * 3, compression="lz4"))
        client.create_topic("deleted")
        client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="deleted")]))
        part = DeleteRecordsPartition(partition_index=0, offset=7)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="kept", partitions=[part])])
        assert client.ask(request).topics[0].partitions[0].low_watermark == 7
        before = client.ask(MetadataRequest(topics=None))
        records = client.read_all("kept", offset=7)
    broker.restart(how)
    with RawClient(broker.bootstrap) as client:
        after = client.ask(MetadataRequest(topics=None))
        assert after.cluster_id == before.cluster_id
        names = {topic.name: (topic.topic_id, len(topic.partitions)) for topic in before.topics}
        assert {topic.name: (topic.topic_id, len(topic.partitions)) for topic in after.topics} == names
        assert client.offset_for("kept", -2).offset == 7
        assert client.fetch("kept", 6).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert client.read_all("kept", offset=7) == records
        assert client.produce("kept", batch_of([b"x" * 6000])).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert client.produce("kept", batch_of([b"next"])).base_offset == 60


@each_end
def test_committed_offsets_and_members_are_found_again(broker: RestartableBroker, how: str) -> None:
    """A member goes on with its generation after the restart: no rebalance, its assignment and commits are there."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("read")
        client.produce("read", batch_of([b"x"] * 10))
        client.commit("empty-group", "read", 3, metadata="before")
        member = RawMember(client, "group", session_ms=30_000)
        member.join()
        member.sync({member.member_id: b"all of it"})
        assert member.commit("read", 5) == 0
    broker.restart(how)
    with RawClient(broker.bootstrap) as client:
        member.client = client
        assert client.committed("empty-group", "read") == (3, "before")
        assert client.committed("group", "read")[0] == 5
        assert member.heartbeat() == 0
        assert member.sync().assignment == b"all of it"
        assert member.commit("read", 6) == 0
        described = client.ask(DescribeGroupsRequest(groups=["group"])).groups[0]
        assert (described.group_state, len(described.members)) == ("Stable", 1)


@each_end
def test_a_static_member_comes_back_after_the_brokers_restart(broker: RestartableBroker, how: str) -> None:
    """Both the member and the broker restart: the instance id still gets its assignment without a rebalance."""
    with RawClient(broker.bootstrap) as client:
        former = RawMember(client, "group", instance_id="one", session_ms=30_000)
        former.join()
        former.sync({former.member_id: b"mine"})
    broker.restart(how)
    with RawClient(broker.bootstrap) as client:
        present = RawMember(client, "group", instance_id="one", session_ms=30_000)
        assert present.join().generation_id == former.generation
        assert present.sync().assignment == b"mine"
        former.client = client
        assert former.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


@each_end
def test_a_member_that_never_returns_is_removed_after_the_restart(broker: RestartableBroker, how: str) -> None:
    """Members are stored, so their sessions must end after a restart too: a full one, from the start on."""
    with RawClient(broker.bootstrap) as client:
        member = RawMember(client, "group", session_ms=700)
        member.join()
        member.sync({member.member_id: b"all"})
    broker.restart(how)
    with RawClient(broker.bootstrap) as client:

        def state() -> str:
            return str(client.ask(DescribeGroupsRequest(groups=["group"])).groups[0].group_state)

        eventually(lambda: state() != "Stable", "the member's session ends")


@each_end
def test_sequences_are_known_after_a_restart(broker: RestartableBroker, how: str) -> None:
    """A producer repeats a batch whose acknowledgement was lost in the restart: success, no duplicate."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("sequenced")
        producer = client.producer_id()
        first = batch_of([b"a", b"b"], producer_id=producer, producer_epoch=0, base_sequence=0)
        assert client.produce("sequenced", first).base_offset == 0
    broker.restart(how)
    with RawClient(broker.bootstrap) as client:
        again = client.produce("sequenced", first)
        assert (again.error_code, again.base_offset) == (0, 0)
        gap = batch_of([b"d"], producer_id=producer, producer_epoch=0, base_sequence=3)
        assert client.produce("sequenced", gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        following = batch_of([b"c"], producer_id=producer, producer_epoch=0, base_sequence=2)
        assert client.produce("sequenced", following).base_offset == 2
        assert [record.value for record in client.read_all("sequenced")] == [b"a", b"b", b"c"]


def test_producer_ids_and_leader_epochs_never_come_twice(broker: RestartableBroker) -> None:
    """Fault 18: an id given out again would make a new producer look like an old one, and its records vanish."""
    producers: list[int] = []
    epochs: list[int] = []
    for how in ("kill -9", "clean", "kill -9"):
        with RawClient(broker.bootstrap) as client:
            producers += [client.producer_id() for _ in range(3)]
            epochs.append(client.describe_topic("__consumer_offsets").partitions[0].leader_epoch)
        broker.restart(how)
    with RawClient(broker.bootstrap) as client:
        producers.append(client.producer_id())
        epochs.append(client.describe_topic("__consumer_offsets").partitions[0].leader_epoch)
    assert len(set(producers)) == len(producers)
    assert epochs == sorted(set(epochs))


@each_end
def test_consumers_can_find_where_an_epoch_ended(broker: RestartableBroker, how: str) -> None:
    """OffsetForLeaderEpoch over a restart: the old epoch ends where the new one began."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("epochs")
        old = client.describe_topic("epochs").partitions[0].leader_epoch
        client.produce("epochs", batch_of([b"a"] * 4))
    broker.restart(how)
    with RawClient(broker.bootstrap) as client:
        new = client.describe_topic("epochs").partitions[0].leader_epoch
        assert new > old
        assert client.fetch("epochs", 0, epoch=old).error_code == ErrorCode.FENCED_LEADER_EPOCH
        client.produce("epochs", batch_of([b"b"] * 2))
        parts = [OffsetForLeaderPartition(leader_epoch=epoch) for epoch in (old, new)]
        ends = [
            client.ask(OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="epochs", partitions=[part])]))
            for part in parts
        ]
        assert [(one.topics[0].partitions[0].leader_epoch, one.topics[0].partitions[0].end_offset) for one in ends] == [
            (old, 4),
            (new, 6),
        ]


@each_end
@pytest.mark.parametrize("kind", MEMBERS)
def test_a_connected_consumer_goes_on_after_a_restart(broker: RestartableBroker, how: str, kind: str) -> None:
    """It reconnects by itself and reads what is written afterwards; what it committed before is not read again."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("followed", 2)
        client.produce("followed", batch_of([b"before"]))
    member = MEMBERS[kind](broker.bootstrap, "followers", "followed")
    member.start()
    try:
        eventually(lambda: member.check() and len(member.seen) == 1, "the first record is read")
        with RawClient(broker.bootstrap) as client:
            eventually(lambda: member.check() and client.committed("followers", "followed")[0] == 1, "it is committed")
        broker.restart(how)
        with RawClient(broker.bootstrap) as client:
            client.produce("followed", batch_of([b"after"]))
            client.produce("followed", batch_of([b"after"]), partition=1)
            eventually(lambda: member.check() and len(member.seen) >= 3, "what came after the restart is read")
            eventually(lambda: member.check() and client.committed("followers", "followed")[0] == 2, "and committed")
        assert sorted(member.seen) == [(0, 0, b"before"), (0, 1, b"after"), (1, 0, b"after")]
        shared_out([member], 2)
    finally:
        member.leave()


@each_end
def test_an_idempotent_producer_goes_on_over_restarts(tmp_path: Path, how: str) -> None:
    """Records are sent all through two restarts: each is there once, in order; the producer notices nothing."""
    with RestartableBroker(tmp_path / "data", flush="always") as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic("written", 2)
        settings = {"enable.idempotence": True, "linger.ms": 1, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20}
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **settings})
        errors: list[object] = []
        delivered = 0

        def on_delivery(error: object, _: object) -> None:
            nonlocal delivered
            delivered += 1
            if error is not None:
                errors.append(error)

        def send(numbers: range) -> None:
            for number in numbers:
                producer.produce("written", b"%d" % number, partition=number % 2, on_delivery=on_delivery)
                producer.poll(0)

        send(range(500))
        eventually(lambda: producer.poll(0.01) >= 0 and delivered > 0, "the first record is acknowledged")
        for round_number in (1, 2):
            broker.end(how)
            send(range(500 * round_number, 500 * (round_number + 1)))
            broker.start()
        assert producer.flush(30) == 0
        assert (errors, delivered) == ([], 1500)
        with RawClient(broker.bootstrap) as client:
            for partition in range(2):
                values = [record.value for record in client.read_all("written", partition=partition)]
                assert values == [b"%d" % number for number in range(partition, 1500, 2)]


def test_commits_made_after_the_offsets_log_was_cut_are_kept(broker: RestartableBroker) -> None:
    """The snapshot of the groups may reach further than their log (a power cut under flush os, a damaged tail).

    1. A clean stop stores a snapshot with the position up to which it covers the log. 2. The log loses its tail.
    3. The broker starts; new commits get offsets below that position. 4. kill -9. 5. They must still be found.
    """
    with RawClient(broker.bootstrap) as client:
        client.create_topic("read")
        client.produce("read", batch_of([b"x"] * 20))
        for number in range(20):
            client.commit("before", "read", number)
    broker.end("clean")
    for segment in (broker.folder / "__consumer_offsets" / "0").iterdir():
        segment.unlink()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        for number in range(5):
            assert client.commit("after", "read", number) == 0
    broker.restart("kill -9")
    with RawClient(broker.bootstrap) as client:
        assert client.committed("after", "read")[0] == 4


@each_end
def test_commits_beyond_the_end_of_the_log_are_cut_back(broker: RestartableBroker, how: str) -> None:
    """A position beyond the end would skip the records that come next; a start finds it and sets it to the end."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("short")
        client.produce("short", batch_of([b"x"] * 5))
        assert client.commit("eager", "short", 100, metadata="far") == 0
        assert client.commit("exact", "short", 5, metadata="at the end") == 0
    for _ in range(2):
        broker.restart(how)
        with RawClient(broker.bootstrap) as client:
            assert client.committed("eager", "short")[0] == 5
            assert client.committed("exact", "short") == (5, "at the end")


def test_a_topic_made_again_under_its_name_is_another_topic(broker: RestartableBroker) -> None:
    """Fault 5: a new id, no records, and no commits of the old one: they would mark new records as done. Also later."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("again")
        old = client.describe_topic("again").topic_id
        client.produce("again", batch_of([b"old"] * 5))
        client.commit("group", "again", 5)
        assert client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="again")])).responses[0].error_code == 0
        assert client.create_topic("again").error_code == 0
    for how in ("no restart", "kill -9", "clean"):
        if how != "no restart":
            broker.restart(how)
        with RawClient(broker.bootstrap) as client:
            assert client.describe_topic("again").topic_id != old
            assert client.read_all("again") == []
            assert client.committed("group", "again")[0] == -1


def test_members_of_many_groups_survive_together(broker: RestartableBroker) -> None:
    """Fifty groups with a member each: after kill -9 every one of them heartbeats on as if nothing had happened."""
    with ExitStack() as stack:
        members = []
        client = stack.enter_context(RawClient(broker.bootstrap))
        for number in range(50):
            member = RawMember(client, f"group-{number}", session_ms=30_000)
            member.join()
            member.sync({member.member_id: b"%d" % number})
            members.append(member)
        broker.restart("kill -9")
        after = stack.enter_context(RawClient(broker.bootstrap))
        for number, member in enumerate(members):
            member.client = after
            assert member.heartbeat() == 0
            assert member.sync().assignment == b"%d" % number
