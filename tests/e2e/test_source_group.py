"""How a source shares a group: revokes, commits, fences, static members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from source_listener import Listener
from topic_contents import committed, fill
from waiting import eventually

from anabranch.control.effects import Commit, Pause, Position, Released, Resume
from anabranch.control.events import Assigned, CommitEnded, Lost, Revoked
from anabranch.core.errors import PeerError
from anabranch.core.work import TopicPartition
from anabranch.kafka.admin import Admin
from anabranch.kafka.client import Connection
from anabranch.kafka.groups import describe_group
from anabranch.kafka.leave import leave_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch import Broker


def test_metadata_of_a_commit_comes_back_as_it_was_given(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """4,000 characters of metadata and the leader epoch go there and back, without the NUL that the library adds."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    name = TopicPartition(topic, 1)
    text = "anabranch:1:" + "Aa0_-" * 797 + "xyz"
    fill(bootstrap, topic, [b"a", b"b", b"c"], 1)
    with Listener(bootstrap, [topic], topic) as listener:
        listener.wait_for_records(3)
        listener.do(Commit({name: Position(2, listener.read[name][1].leader_epoch, text)}, 7))
        assert listener.wait_for_commit() == CommitEnded({name: None}, False, 7)
    assert committed(bootstrap, topic)[name] == (2, text)
    with Listener(bootstrap, [topic], topic) as listener:
        listener.wait_for_records(1)
        assert listener.starts()[name].metadata == text
        assert listener.read[name][0].value == b"c"


def test_a_commit_without_metadata_carries_the_topic_id(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """So that it is not believed when the topic is made again; control sees no metadata."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    name = TopicPartition(topic, 0)
    fill(bootstrap, topic, [b"a"], 0)
    with Listener(bootstrap, [topic], topic) as listener:
        listener.wait_for_records(1)
        listener.do(Commit({name: Position(1, -1, "")}))
        listener.wait_for_commit()
        assert listener.starts()[name].topic_id in committed(bootstrap, topic)[name][1]
    with Listener(bootstrap, [topic], topic) as listener:
        listener.wait_for_partitions(4)
        start = listener.starts()[name]
        assert (start.position, start.metadata) == (1, "")


def test_a_revoked_partition_is_drained_and_committed_before_it_moves(
    anabranch_broker: Broker, anabranch_topic: str
) -> None:
    """Only what moves is revoked; the next owner begins where the commit inside of the callback says."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    for partition in range(4):
        fill(bootstrap, topic, [b"%d" % number for number in range(10)], partition)
    with Listener(bootstrap, [topic], topic) as first:
        first.releases = False
        first.wait_for_records(40)
        with Listener(bootstrap, [topic], topic) as second:
            revoked: Revoked = eventually(lambda: first.all(Revoked), "a revoke")[0]
            assert len(revoked.partitions) == 2
            moving = revoked.partitions
            first.do(Commit({name: Position(6, -1, "six of ten") for name in moving}, 3))
            assert first.wait_for_commit() == CommitEnded(dict.fromkeys(moving), False, 3)
            assert not second.owned
            first.do(Released(moving))
            second.wait_for_records(8)
            starts = second.starts()
            assert {name: (start.position, start.metadata) for name, start in starts.items()} == dict.fromkeys(
                moving, (6, "six of ten")
            )
            assert set(first.owned) | set(second.owned) == {TopicPartition(topic, number) for number in range(4)}
            assert not first.all(Lost)


def test_what_is_not_released_within_the_grace_is_lost(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """A drain that does not end must not hold up the group; control is told that nothing more counts."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    with Listener(bootstrap, [topic], topic, grace_s=0.2) as first:
        first.releases = False
        first.wait_for_partitions(4)
        with Listener(bootstrap, [topic], topic) as second:
            second.wait_for_partitions(2)
            assert sorted(first.all(Lost)[0].partitions) == sorted(first.all(Revoked)[0].partitions)
            name = first.all(Lost)[0].partitions[0]
            first.do(Commit({name: Position(99, -1, "")}, 1))
            ended = eventually(lambda: first.all(CommitEnded), "the late commit's answer")[0]
            assert ended.errors[name] is not None
            assert committed(bootstrap, topic)[name][0] == 0


def test_a_commit_in_flight_is_answered_before_a_revoke_waits(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """The answer of a commit comes by polling, and nothing is polled in the callback; it must not cost the grace."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    names = [TopicPartition(topic, number) for number in range(4)]
    for partition in range(4):
        fill(bootstrap, topic, [b"x"] * 100, partition)
    with Listener(bootstrap, [topic], topic, grace_s=30) as first:
        first.commits_at_revoke = True
        first.wait_for_records(400)
        with Listener(bootstrap, [topic], topic) as second:
            for position in range(1, 101):
                first.do(Commit({name: Position(position, -1, "") for name in names if name in first.owned}, position))
                _wait_for_number(first, position)
                if len(second.owned) == 2:
                    break
            second.wait_for_partitions(2)
        assert not first.all(Lost)
        assert not [each for each in first.all(CommitEnded) if each.fenced]


def test_paused_partitions_lose_nothing_and_hold_up_nobody(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """Half of the gates are closed over and over with a tiny bound: every record comes once, in order."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    count = 3000
    for partition in range(4):
        fill(bootstrap, topic, [b"%d" % number for number in range(count)], partition)
    names = [TopicPartition(topic, number) for number in range(4)]
    with Listener(bootstrap, [topic], topic, records_max=400) as listener:
        listener.wait_for_partitions(4)
        for turn in range(10):
            closed = names[turn % 4 :: 2]
            others = [name for name in names if name not in closed]
            listener.do(Pause(closed), Resume(others))
            _wait_for_positions(listener, others, min((turn + 1) * 250, count))
        listener.do(Pause(names))
        eventually(lambda: listener.source.statistics()["partitions_closed"] == 4, "all gates closed")
        listener.do(Resume(names))
        listener.wait_for_records(4 * count)
        for name in names:
            assert [record.offset for record in listener.read[name]] == list(range(count))


def test_a_pause_ends_with_the_ownership(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """A partition that was paused, moved away and came back is read again without being asked."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    names = [TopicPartition(topic, number) for number in range(4)]
    with Listener(bootstrap, [topic], topic, records_max=8) as first:
        first.wait_for_partitions(4)
        first.do(Pause(names))
        for partition in range(4):
            fill(bootstrap, topic, [b"x"] * 50, partition)
        eventually(lambda: first.source.statistics()["partitions_stopped"] == 4, "the library to be paused")
        with Listener(bootstrap, [topic], topic) as second:
            second.wait_for_partitions(2)
            moved = list(second.owned)
        eventually(lambda: all(first.owned.get(name) == 50 for name in moved), "what came back to be read")


def test_a_slow_taker_bounds_what_is_under_way_and_keeps_its_place(
    anabranch_broker: Broker, anabranch_topic: str
) -> None:
    """Someone blocks the loop: a few batches wait, no more are read, and the group goes on with us."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    for partition in range(4):
        fill(bootstrap, topic, [b"x" * 1000] * 5000, partition)
    with Listener(bootstrap, [topic], topic, records_max=5000, batches_outstanding_max=3) as first:
        first.wait_for_partitions(4)
        first.source.taken()
        first.slow = True
        eventually(lambda: first.source.statistics()["outstanding"] >= 3, "batches that nobody takes")
        handed = len(first.values())
        with Listener(bootstrap, [topic], topic) as second:
            second.wait_for_partitions(2)  # the rebalance was served
            assert len(first.values()) == handed
            statistics = first.source.statistics()
            assert statistics["held_records"] < 1000
            first.hurry()
            eventually(lambda: all(position == 5000 for position in first.owned.values()), "the rest")
            for name in first.owned:
                assert [record.offset for record in first.read[name]] == list(range(5000))


def test_a_static_member_that_comes_twice_fences_the_first(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """The first is told that all is lost and ends with a sentence; nothing of it is committed."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    static = {"group.instance.id": "one"}
    fill(bootstrap, topic, [b"x"], 0)
    with Listener(bootstrap, [topic], topic, extra=static) as first:
        first.wait_for_records(1)
        with Listener(bootstrap, [topic], topic, extra=static) as second:
            second.wait_for_partitions(4)
            first.do(Commit({TopicPartition(topic, 0): Position(1, -1, "")}))
            error = first.wait_for_failure()
            assert isinstance(error, PeerError)
            assert "group.instance.id" in str(error)
            assert not first.owned
            assert committed(bootstrap, topic)[TopicPartition(topic, 0)][0] == 0


@pytest.mark.parametrize("leaves", [True, False])
def test_a_static_member_may_free_its_place(anabranch_broker: Broker, anabranch_topic: str, leaves: bool) -> None:
    """Asked for, a clean end frees the place at once; else it waits for the member's return."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    with Listener(bootstrap, [topic], topic, extra={"group.instance.id": "one"}, leave_static=leaves) as first:
        first.wait_for_partitions(4)
    members = describe_group(Admin(Connection(bootstrap)), topic).members
    assert [member.instance for member in members] == ([] if leaves else ["one"])


def test_a_place_that_another_member_has_by_now_is_not_freed(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """Who was replaced leaves quietly, and its successor stays."""
    connection, topic = Connection(anabranch_broker.bootstrap), anabranch_topic
    with Listener(connection.bootstrap, [topic], topic, extra={"group.instance.id": "one"}) as successor:
        successor.wait_for_partitions(4)
        leave_group(connection, topic, "one-predecessor", "one")
        assert [member.instance for member in describe_group(Admin(connection), topic).members] == ["one"]


def test_who_stops_takes_no_partition_that_comes_and_still_commits(
    anabranch_broker: Broker, anabranch_topic: str
) -> None:
    """Others stop too, and theirs come: to ask where they begin would hold up the last commits."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    with Listener(bootstrap, [topic], topic) as first:
        first.wait_for_partitions(4)
        with Listener(bootstrap, [topic], topic) as second:
            second.wait_for_partitions(2)
            first.wait_for_partitions(2)
            owned = set(first.owned)
            first.source.take_no_more()
            before = first.source.statistics()["rebalances"]
        eventually(lambda: first.source.statistics()["rebalances"] > before, "the others' partitions to come")
        first.do(Commit({name: Position(0, -1, "") for name in owned}, 9))
        _wait_for_number(first, 9)
        assert set(first.owned) == owned


def test_an_eager_group_is_served_too(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """With an eager assignor everything is revoked and assigned again, and nothing is lost."""
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    eager: Mapping[str, str] = {"partition.assignment.strategy": "range"}
    for partition in range(4):
        fill(bootstrap, topic, [b"x"] * 10, partition)
    with Listener(bootstrap, [topic], topic, extra=eager) as first:
        first.commits_at_revoke = True
        first.wait_for_records(40)
        with Listener(bootstrap, [topic], topic, extra=eager) as second:
            second.wait_for_partitions(2)
            first.wait_for_partitions(2)
            assert {start.position for start in second.starts().values()} == {10}
            for partition in range(4):
                fill(bootstrap, topic, [b"y"], partition)
            eventually(lambda: (first.values() + second.values()).count(b"y") == 4, "what came later")
            assert len(first.all(Assigned)) == 2


def _wait_for_number(listener: Listener, number: int) -> None:
    eventually(lambda: number in [each.number for each in listener.all(CommitEnded)], "the commit's answer")


def _wait_for_positions(listener: Listener, names: list[TopicPartition], position: int) -> None:
    eventually(lambda: all(listener.owned[name] >= position for name in names), f"{names} to reach {position}")
