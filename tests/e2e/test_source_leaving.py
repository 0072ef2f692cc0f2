"""Leaving a group that is busy with a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from source_listener import Listener
from waiting import eventually

from anabranch.control.events import Revoked
from anabranch.kafka.admin import Admin
from anabranch.kafka.client import Connection
from anabranch.kafka.groups import describe_group

if TYPE_CHECKING:
    from anabranch import Broker


def test_a_member_that_leaves_while_it_waits_for_the_others_is_forgotten(
    anabranch_broker: Broker, anabranch_topic: str
) -> None:
    """The client library is not heard then, and gives up after five seconds: the group would wait for a ghost.

    The first member is in its revoke and takes its time, so the third one's request to join waits. When the third one
    has closed, the group must not know it any more, long before any session ends.
    """
    bootstrap, topic = anabranch_broker.bootstrap, anabranch_topic
    admin = Admin(Connection(bootstrap))

    def members() -> int:
        return len(describe_group(admin, topic).members)

    patient = {"grace_s": 60.0, "session_timeout_s": 60.0}
    with Listener(bootstrap, [topic], topic, **patient) as first:
        first.wait_for_partitions(4)
        first.releases = False
        with Listener(bootstrap, [topic], topic, **patient):
            eventually(lambda: first.all(Revoked), "the first to be asked for partitions")
            third = Listener(bootstrap, [topic], topic, **patient)
            third.source.start()
            eventually(lambda: members() == 3, "the third to wait")
            third.source.close()
            assert third.source.join(20)
            assert members() == 2
