"""Consumer groups of unmodified clients: members come, go and die, and every record is read by somebody."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from foreign_clients import CLIENTS, Row
from group_members import MEMBERS, ConfluentMember, Member, shared_out
from raw_client import RawClient
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch import Broker

PARTITIONS = 4


class Group:
    """A fresh group on a fresh topic: starts members, writes records, and judges at the end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.group = f"group-{secrets.token_hex(6)}"
        self.members: list[Member] = []
        self.written = 0

    def start(self, kind: str, **options: Any) -> Member:
        member = MEMBERS[kind](self.bootstrap, self.group, self.topic, **options)
        member.start()
        self.members.append(member)
        return member

    def write(self, count: int = 40) -> None:
        first = self.written
        rows = [Row(number % PARTITIONS, b"k", b"%d" % number, 1000 + number) for number in range(first, first + count)]
        CLIENTS[0].write(self.bootstrap, self.topic, rows)
        self.written += count

    def all_read_and_committed(self) -> None:
        """Every record was read by somebody, and the group's commits stand at the end of every partition."""
        expected = {b"%d" % number for number in range(self.written)}
        eventually(
            lambda: {value for member in self.members for _, _, value in list(member.seen)} >= expected, "all is read"
        )
        with RawClient(self.bootstrap) as client:
            for partition in range(PARTITIONS):
                end = client.offset_for(self.topic, -1, partition=partition).offset
                eventually(
                    lambda end=end, partition=partition: client.committed(self.group, self.topic, partition)[0] == end,
                    f"partition {partition} is committed up to {end}",
                )


@pytest.fixture
def group(anabranch_broker: Broker, anabranch_topic: str) -> Iterator[Group]:
    made = Group(anabranch_broker.bootstrap, anabranch_topic)
    yield made
    for member in made.members:
        member.leave()


@pytest.mark.parametrize(
    ("kinds", "assignor"),
    [
        pytest.param(("confluent", "confluent", "confluent"), "range", id="confluent-range"),
        pytest.param(("confluent", "confluent", "confluent"), "cooperative-sticky", id="confluent-cooperative"),
        pytest.param(("kafka-python", "kafka-python", "kafka-python"), "range", id="kafka-python-range"),
        pytest.param(("aiokafka", "aiokafka", "aiokafka"), "roundrobin", id="aiokafka-roundrobin"),
        pytest.param(("kafka-python", "aiokafka", "kafka-python"), "roundrobin", id="mixed-roundrobin"),
        pytest.param(("confluent", "kafka-python", "aiokafka"), "range", id="mixed-range"),
    ],
)
def test_members_share_the_partitions_and_every_record_is_read(
    group: Group, kinds: tuple[str, ...], assignor: str
) -> None:
    """Two share the partitions, a third joins, the first leaves: at each step all partitions have exactly one owner."""
    first, second = group.start(kinds[0], assignor=assignor), group.start(kinds[1], assignor=assignor)
    group.write()
    shared_out([first, second], PARTITIONS)
    group.write()
    third = group.start(kinds[2], assignor=assignor)
    shared_out([first, second, third], PARTITIONS)
    group.write()
    first.leave()
    shared_out([second, third], PARTITIONS)
    group.write()
    group.all_read_and_committed()


@pytest.mark.parametrize("kind", MEMBERS)
def test_commits_are_kept_for_the_next_member(group: Group, kind: str) -> None:
    """Who comes after all have gone starts where they ended: nothing is read twice, nothing is left out."""
    first = group.start(kind)
    group.write()
    group.all_read_and_committed()
    first.leave()
    second = group.start(kind)
    shared_out([second], PARTITIONS)
    group.write()
    group.all_read_and_committed()
    assert {value for _, _, value in second.seen} == {b"%d" % number for number in range(40, 80)}


def test_a_static_member_restarts_without_a_rebalance(group: Group) -> None:
    """KIP-345: within its session it comes back under its instance id, has its partitions back, no one is disturbed."""
    first = group.start("confluent", **{"group.instance.id": "one"})
    second = group.start("confluent", **{"group.instance.id": "two"})
    shared_out([first, second], PARTITIONS)
    had, rebalances = first.assignment, second.rebalances
    first.leave()
    group.write()
    again = group.start("confluent", **{"group.instance.id": "one"})
    shared_out([again, second], PARTITIONS)
    assert again.assignment == had
    assert second.rebalances == rebalances
    group.all_read_and_committed()


_CONSUME_UNTIL_KILLED = """
import sys, confluent_kafka
bootstrap, group, topic = sys.argv[1:]
consumer = confluent_kafka.Consumer({
    "bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 1000, "heartbeat.interval.ms": 100,
    "partition.assignment.strategy": "range", "auto.offset.reset": "earliest", "enable.auto.commit": False,
})
consumer.subscribe([topic], on_assign=lambda _, parts: parts and print("assigned", flush=True))
while True:
    consumer.poll(0.1)
"""


def test_a_member_that_is_killed_is_removed_after_its_session(group: Group) -> None:
    """kill -9 says no goodbye: when the session is over its partitions go to the one that lives."""
    command = [sys.executable, "-c", _CONSUME_UNTIL_KILLED, group.bootstrap, group.group, group.topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as doomed:
        try:
            assert doomed.stdout is not None
            assert doomed.stdout.readline() == "assigned\n"
            survivor = group.start("confluent", **{"session.timeout.ms": 1000})
            group.write()
            eventually(lambda: len(survivor.assignment) == 2, "the two share the partitions")
        finally:
            doomed.send_signal(signal.SIGKILL)
    shared_out([survivor], PARTITIONS)
    group.all_read_and_committed()


def test_a_group_is_listed_and_described_to_administrators(group: Group) -> None:
    """ListGroups and DescribeGroups through an AdminClient: states, members, their clients, hosts and assignments."""
    from confluent_kafka.admin import AdminClient

    first = group.start("confluent", **{"client.id": "first-client"})
    second = group.start("confluent", **{"group.instance.id": "second-instance"})
    shared_out([first, second], PARTITIONS)
    admin = AdminClient({"bootstrap.servers": group.bootstrap})
    listed = {one.group_id: one for one in admin.list_consumer_groups().result(10).valid}
    assert listed[group.group].state.name == "STABLE"
    assert not listed[group.group].is_simple_consumer_group
    described = admin.describe_consumer_groups([group.group])[group.group].result(10)
    assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
    by_instance = {one.group_instance_id: one for one in described.members}
    assert by_instance.keys() == {None, "second-instance"}
    assert by_instance[None].client_id == "first-client"
    assert "127.0.0.1" in by_instance[None].host
    for instance, member in ((None, first), ("second-instance", second)):
        assigned = by_instance[instance].assignment.topic_partitions
        assert {(part.topic, part.partition) for part in assigned} == {(group.topic, n) for n in member.assignment}
    first.leave()
    second.leave()
    identity = [one for one in described.members if one.group_instance_id]
    assert identity, "a static member stays after its client has gone, until its session ends"


def test_kafka_python_describes_groups_too(group: Group) -> None:
    """The other administrator's client reads the same answers."""
    from foreign_clients import kafka

    member = group.start("kafka-python")
    group.write()
    group.all_read_and_committed()
    admin = kafka.KafkaAdminClient(bootstrap_servers=group.bootstrap)
    try:
        described = admin.describe_groups([group.group])
        assert "Stable" in repr(described)
        assert group.group in repr(admin.list_groups())
        offsets = admin.list_group_offsets([group.group])
        assert group.topic in repr(offsets)
    finally:
        admin.close()
    assert member.error is None


def test_a_lone_confluent_member_owns_everything_with_each_assignor(
    anabranch_broker: Broker, anabranch_topic: str
) -> None:
    """A group of one, for each assignor that librdkafka has."""
    for assignor in ("range", "roundrobin", "cooperative-sticky"):
        member = ConfluentMember(
            anabranch_broker.bootstrap, f"{anabranch_topic}-{assignor}", anabranch_topic, assignor=assignor
        )
        member.start()
        shared_out([member], PARTITIONS)
        member.leave()
