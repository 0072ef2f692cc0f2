"""Where a source begins, on a real broker."""

from __future__ import annotations

import struct
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from fastcrc import crc32
from raw_client import RawClient, produce_request
from source_listener import Listener
from topic_contents import commit, committed, create, delete_records, fill
from waiting import eventually

from anabranch.broker.wire.records import Record as WireRecord
from anabranch.broker.wire.records import build_batch
from anabranch.control.effects import Pause, Resume
from anabranch.core.errors import BrokerUnreachable, Halted, UsageError
from anabranch.core.work import TopicPartition
from anabranch.kafka.admin import Admin
from anabranch.kafka.client import LIBRARY_LOGGER, Connection
from anabranch.kafka.offsets import read_note

if TYPE_CHECKING:
    from anabranch import Broker

ONE = TopicPartition


@pytest.fixture
def topic(anabranch_broker: Broker, request: pytest.FixtureRequest) -> str:
    """Make a topic with one partition."""
    return create(anabranch_broker.bootstrap, f"starts-{time.monotonic_ns()}")


def test_without_a_commit_everything_is_read_and_the_start_is_stored_at_once(
    anabranch_broker: Broker, topic: str
) -> None:
    """The resolved start is in the group's commits before any record is handed over."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"a", b"b"])
    with Listener(bootstrap, [topic], topic) as listener:
        listener.wait_for_partitions(1)
        position, metadata = committed(bootstrap, topic)[ONE(topic, 0)]
        assert position == 0
        note = read_note(metadata)
        assert note is not None
        assert note.partitions == 1
        assert note.topic_id == listener.starts()[ONE(topic, 0)].topic_id != ""
        listener.wait_for_records(2)
        assert listener.values() == [b"a", b"b"]
        assert listener.owned == {ONE(topic, 0): 2}


def test_a_committed_position_wins_over_the_rule(anabranch_broker: Broker, topic: str) -> None:
    """`start` says where a group begins that has no commit, and nothing else."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"%d" % number for number in range(10)])
    commit(bootstrap, topic, topic, 0, 7, "kept as it is")
    with Listener(bootstrap, [topic], topic, start="latest") as listener:
        listener.wait_for_records(3)
        start = listener.starts()[ONE(topic, 0)]
        assert (start.position, start.metadata, start.log_start, start.log_end) == (7, "kept as it is", 0, 10)
        assert listener.values() == [b"7", b"8", b"9"]


def test_latest_reads_only_what_comes(anabranch_broker: Broker, topic: str) -> None:
    """A full topic read from its end: the offsets before the first record are no gap to wait for."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"old"] * 5)
    with Listener(bootstrap, [topic], topic, start="latest") as listener:
        listener.wait_for_partitions(1)
        assert listener.owned == {ONE(topic, 0): 5}
        fill(bootstrap, topic, [b"new"])
        listener.wait_for_records(1)
        assert listener.values() == [b"new"]


def test_a_crash_after_latest_and_before_the_first_commit_loses_nothing(anabranch_broker: Broker, topic: str) -> None:
    """What is written between a crash and the restart is read, because the first start was stored."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"old"])
    with Listener(bootstrap, [topic], topic, start="latest") as first:
        first.wait_for_partitions(1)
    fill(bootstrap, topic, [b"meanwhile"])
    with Listener(bootstrap, [topic], topic, start="latest") as second:
        second.wait_for_records(1)
        assert second.values() == [b"meanwhile"]


def test_a_partition_that_is_added_under_latest_is_read_from_its_beginning(
    anabranch_broker: Broker, topic: str
) -> None:
    """KIP-842: what was written to a new partition before it was noticed is read."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"old"])
    refresh = {"topic.metadata.refresh.interval.ms": "200"}
    with Listener(bootstrap, [topic], topic, start="latest", extra=refresh) as listener:
        listener.wait_for_partitions(1)
        admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LIBRARY_LOGGER)
        for answer in admin.create_partitions([NewPartitions(topic, 2)]).values():
            answer.result()
        fill(bootstrap, topic, [b"early"], partition=1)
        listener.wait_for_partitions(2)
        listener.wait_for_records(1)
        assert listener.values() == [b"early"]


def test_members_that_start_together_under_latest_do_not_take_each_other_for_old(
    anabranch_broker: Broker, anabranch_topic: str
) -> None:
    """The first commits of one member do not make the partitions of the other look new."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    for partition in range(4):
        fill(bootstrap, topic, [b"old"] * 3, partition)
    first = Listener(bootstrap, [topic], topic, start="latest")
    second = Listener(bootstrap, [topic], topic, start="latest")
    with first, second:
        eventually(lambda: len(first.owned) == len(second.owned) == 2, "two partitions each")
        starts = [*first.starts().values(), *second.starts().values()]
        assert {start.position for start in starts} == {3}


def test_a_time_begins_at_the_first_record_from_then_on(anabranch_broker: Broker, topic: str) -> None:
    """With a datetime the first record is the first one of that time or later; without one it is the end."""
    bootstrap = anabranch_broker.bootstrap
    producer = Producer({"bootstrap.servers": bootstrap}, logger=LIBRARY_LOGGER)
    for second in (1000, 2000, 3000):
        producer.produce(topic, b"%d" % second, partition=0, timestamp=second * 1000)
    producer.flush()
    with Listener(bootstrap, [topic], f"{topic}-a", start=datetime.fromtimestamp(1500, UTC)) as listener:
        listener.wait_for_records(2)
        assert listener.values() == [b"2000", b"3000"]
    with Listener(bootstrap, [topic], f"{topic}-b", start=9999.0) as listener:
        listener.wait_for_partitions(1)
        assert listener.owned == {ONE(topic, 0): 3}


def test_explicit_offsets_hold_for_the_partitions_that_they_name(
    anabranch_broker: Broker, anabranch_topic: str
) -> None:
    """A partition that is not named begins at its log_start."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    fill(bootstrap, topic, [b"a", b"b", b"c"], 0)
    fill(bootstrap, topic, [b"x"], 1)
    with Listener(bootstrap, [topic], topic, start={(topic, 0): 2}) as listener:
        listener.wait_for_records(2)
        assert sorted(listener.values()) == [b"c", b"x"]


def test_what_retention_removed_unread_is_counted_and_said(anabranch_broker: Broker, topic: str) -> None:
    """Retention passed the committed position: reading goes on at log_start, and the loss is no secret."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"%d" % number for number in range(10)])
    commit(bootstrap, topic, topic, 0, 3)
    delete_records(bootstrap, topic, 0, 6)
    with Listener(bootstrap, [topic], topic) as listener:
        listener.wait_for_records(4)
        assert listener.values() == [b"6", b"7", b"8", b"9"]
        statistics = listener.source.statistics()
        assert statistics["lost_to_retention"] == {f"{topic}/0": 3}
        assert "retention removed 3 offsets" in statistics["notices"][0]


def test_a_loss_to_retention_may_halt(anabranch_broker: Broker, topic: str) -> None:
    """Whoever cannot live with a loss is told about it instead."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"x"] * 10)
    commit(bootstrap, topic, topic, 0, 3)
    delete_records(bootstrap, topic, 0, 6)
    with Listener(bootstrap, [topic], topic, on_lost_to_retention="halt") as listener:
        error = listener.wait_for_failure()
        assert isinstance(error, Halted)
        assert 'set on_lost_to_retention="go on"' in str(error)


def test_records_that_are_deleted_under_a_reader_are_passed(anabranch_broker: Broker, topic: str) -> None:
    """The log start passes the position of a live reader: it goes on there, and the client's reset policy is silent."""
    bootstrap = anabranch_broker.bootstrap
    name = ONE(topic, 0)
    fill(bootstrap, topic, [b"0"])
    with Listener(bootstrap, [topic], topic, records_max=4) as listener:
        listener.wait_for_records(1)
        listener.do(Pause([name]))
        for number in range(1, 10):
            fill(bootstrap, topic, [b"%d" % number])
        eventually(lambda: listener.source.statistics()["partitions_stopped"] == 1, "the library to be paused")
        held = listener.source.statistics()["positions"][str(name)]
        delete_records(bootstrap, topic, 0, 8)
        listener.do(Resume([name]))
        eventually(lambda: listener.owned[name] == 10, "the position behind the last record")
        assert listener.values() == [b"%d" % number for number in (*range(held), 8, 9)]
        assert listener.source.statistics()["lost_to_retention"] == {str(name): 8 - held}


def test_a_position_beyond_the_end_halts(anabranch_broker: Broker, topic: str) -> None:
    """Going on at the end would skip what is written there next; the sentence says what can be done."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"x"])
    commit(bootstrap, topic, topic, 0, 1000)
    with Listener(bootstrap, [topic], topic) as listener:
        error = listener.wait_for_failure()
        assert isinstance(error, Halted)
        assert "position 1000 lies beyond the end of the log, 1" in str(error)


@pytest.mark.parametrize(("where", "position"), [("log_start", 0), ("log_end", 1)])
def test_a_position_beyond_the_end_may_go_on(anabranch_broker: Broker, topic: str, where: str, position: int) -> None:
    """Told so, it goes on at one end of the log, and stores that."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"x"])
    commit(bootstrap, topic, topic, 0, 1000)
    with Listener(bootstrap, [topic], topic, on_beyond_end=where) as listener:
        listener.wait_for_partitions(1)
        assert listener.starts()[ONE(topic, 0)].position == position
        assert committed(bootstrap, topic)[ONE(topic, 0)][0] == position


def test_old_progress_says_nothing_about_a_topic_that_was_made_again(anabranch_broker: Broker, topic: str) -> None:
    """A topic was deleted and made again with the same name: its records are not taken for done."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"old"] * 5)
    with Listener(bootstrap, [topic], topic) as listener:
        listener.wait_for_records(5)
    old = committed(bootstrap, topic)[ONE(topic, 0)][1]
    Admin(Connection(bootstrap)).delete([topic])
    create(bootstrap, topic)
    fill(bootstrap, topic, [b"new"] * 7)
    commit(bootstrap, topic, topic, 0, 5, old)  # as on a broker that keeps the commits of deleted topics
    with Listener(bootstrap, [topic], topic) as listener:
        listener.wait_for_records(7)
        assert listener.values() == [b"new"] * 7
        assert "deleted and made again" in listener.source.statistics()["notices"][0]


def test_a_topic_made_again_under_a_live_reader_is_read_from_its_beginning(
    anabranch_broker: Broker, topic: str
) -> None:
    """The reader notices, forgets the old topic, and begins anew with a new assignment."""
    bootstrap = anabranch_broker.bootstrap
    fill(bootstrap, topic, [b"old"] * 5)
    refresh = {"topic.metadata.refresh.interval.ms": "200"}
    with Listener(bootstrap, [topic], topic, extra=refresh) as listener:
        listener.wait_for_records(5)
        Admin(Connection(bootstrap)).delete([topic])
        create(bootstrap, topic)
        fill(bootstrap, topic, [b"new"] * 3)
        eventually(lambda: listener.values() == [b"new"] * 3, "the new topic's records")


def test_nobody_at_the_address_is_said_with_the_fix() -> None:
    """An address without a broker ends the source within its patience."""
    with Listener("127.0.0.1:1", ["t"], "g", reach_s=0.5) as listener:
        error = listener.wait_for_failure()
        assert isinstance(error, BrokerUnreachable)
        assert "no broker answers at 127.0.0.1:1" in str(error)
        assert "anabranch broker" in str(error)


def test_a_topic_that_does_not_exist_is_said_with_the_fix(anabranch_broker: Broker) -> None:
    """A name with a typing error does not wait for ever."""
    with Listener(anabranch_broker.bootstrap, ["ordres"], "g") as listener:
        error = listener.wait_for_failure()
        assert isinstance(error, UsageError)
        assert "anabranch topics create ordres" in str(error)


def test_a_pattern_reads_every_topic_that_matches_also_later_ones(anabranch_broker: Broker, topic: str) -> None:
    """Topics of a pattern are found while running."""
    bootstrap = anabranch_broker.bootstrap
    create(bootstrap, f"{topic}-one")
    fill(bootstrap, f"{topic}-one", [b"1"])
    refresh = {"topic.metadata.refresh.interval.ms": "200"}
    with Listener(bootstrap, [], topic, pattern=f"^{topic}-.*", extra=refresh) as listener:
        listener.wait_for_records(1)
        create(bootstrap, f"{topic}-two")
        fill(bootstrap, f"{topic}-two", [b"2"])
        listener.wait_for_records(2)
        assert sorted(listener.values()) == [b"1", b"2"]


def test_a_header_that_cannot_be_read_stops_nothing(anabranch_broker: Broker, topic: str) -> None:
    """Another client wrote a header whose name is not UTF-8: its record is read, with a header that says so."""
    bad = WireRecord(timestamp=1, value=b"bad", headers=(("éé", b"h"),))
    good = WireRecord(timestamp=1, value=b"good", headers=(("name", b"h"),))
    batch = bytearray(bytes(build_batch([good, bad, good])).replace("éé".encode(), b"\xff\xfe\xff\xfe"))
    struct.pack_into(">I", batch, 17, crc32.iscsi(bytes(batch[21:])))  # the checksum covers what is behind it
    with RawClient(anabranch_broker.bootstrap) as client:
        client.ask(produce_request(topic, batch))
    with Listener(anabranch_broker.bootstrap, [topic], topic) as listener:
        listener.wait_for_records(3)
        records = listener.read[ONE(topic, 0)]
        assert [record.value for record in records] == [b"good", b"bad", b"good"]
        assert [record.headers for record in records] == [
            (("name", b"h"),),
            (("anabranch.headers", b"unreadable: a name is not UTF-8"),),
            (("name", b"h"),),
        ]
