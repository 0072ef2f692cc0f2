"""Members of a consumer group, one thread each, on unmodified clients.

Each reads, notes what it read, then commits: at least once. A commit that is refused because the group rebalances is
tried again after the next poll, as an application would.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AiokafkaRoundRobin
from aiokafka.errors import KafkaError as AiokafkaError
from foreign_clients import kafka
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

POLL_S = 0.05
KAFKA_PYTHON_POLL_S = 0.5
"""kafka-python 3.0 forgets a join that ends between two polls, so they must be longer than a rebalance takes."""
SESSION_MS = 6000
JOIN_S_MAX = 20.0

_KAFKA_PYTHON_ASSIGNORS = {
    "range": kafka.coordinator.assignors.range.RangePartitionAssignor,
    "roundrobin": kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
}
_AIOKAFKA_ASSIGNORS = {"range": AiokafkaRange, "roundrobin": AiokafkaRoundRobin}


class Member(threading.Thread):
    """One member: `assignment` is what it owns now, `seen` what it has read (partition, offset, value)."""

    def __init__(self, bootstrap: str, group: str, topic: str, *, assignor: str = "range", **settings: Any) -> None:
        super().__init__(name=f"member of {group}", daemon=True)
        self.bootstrap, self.group, self.topic, self.assignor = bootstrap, group, topic, assignor
        self.settings = settings
        self.assignment: frozenset[int] = frozenset()
        self.rebalances = 0
        self.seen: list[tuple[int, int, bytes]] = []
        self.error: BaseException | None = None
        self._leaving = threading.Event()
        self._dirty = False

    def run(self) -> None:
        """Consume until told to leave."""
        try:
            self.consume()
        except BaseException as error:  # raised again by `leave`, on the thread of the test
            self.error = error

    def leave(self) -> None:
        """Leave the group (a static member: go away) and end; raise what went wrong meanwhile."""
        self._leaving.set()
        self.join(JOIN_S_MAX)
        assert not self.is_alive(), f"a {type(self).__name__} did not end"
        self.check()

    def check(self) -> bool:
        """Raise what went wrong; else answer True."""
        if self.error is not None:
            raise self.error
        return True

    def consume(self) -> None:
        """Poll, note, commit."""
        raise NotImplementedError

    def note(self, records: Iterable[tuple[int, int, bytes]]) -> None:
        """Remember what was read; it is to be committed."""
        listed = list(records)
        self.seen += listed
        self._dirty = self._dirty or bool(listed)

    def now_owns(self, partitions: Iterable[int]) -> None:
        """Remember what is assigned."""
        found = frozenset(partitions)
        if found != self.assignment:
            self.rebalances += 1
            self.assignment = found


class ConfluentMember(Member):
    """confluent-kafka."""

    def consume(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "partition.assignment.strategy": self.assignor,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 100,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 1000,
                **self.settings,
            }
        )
        consumer.subscribe([self.topic])
        try:
            while not self._leaving.is_set():
                messages = consumer.consume(500, POLL_S)
                for message in messages:
                    error = message.error()
                    assert error is None or error.retriable() or error.code() < 0, error
                good = [message for message in messages if message.error() is None]
                self.note((message.partition(), message.offset(), message.value()) for message in good)
                self.now_owns(part.partition for part in consumer.assignment())
                if self._dirty:
                    self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: Any) -> None:
        try:
            consumer.commit(asynchronous=False)
            self._dirty = False
        except confluent_kafka.KafkaException as error:
            # Nothing to commit any more: what was read has gone to another member, who reads it again.
            self._dirty = error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET


class KafkaPythonMember(Member):
    """kafka-python."""

    def consume(self) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            partition_assignment_strategy=[_KAFKA_PYTHON_ASSIGNORS[self.assignor]],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=100,
            retry_backoff_ms=50,
            reconnect_backoff_max_ms=200,
            metadata_max_age_ms=1000,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            **self.settings,
        )
        try:
            while not self._leaving.is_set():
                self._poll_and_commit(consumer)
        finally:
            consumer.close(autocommit=False)

    def _poll_and_commit(self, consumer: Any) -> None:
        try:
            polled = consumer.poll(timeout_ms=int(KAFKA_PYTHON_POLL_S * 1000))
        except kafka.errors.KafkaConnectionError:
            return  # the broker restarts: this client says so to whoever polls just then
        self.note((one.partition, one.offset, one.value) for records in polled.values() for one in records)
        self.now_owns(part.partition for part in consumer.assignment())
        if self._dirty:
            try:
                consumer.commit()
                self._dirty = False
            except kafka.errors.KafkaError:
                return  # the group rebalances or the broker restarts: again after the next poll


class AiokafkaMember(Member):
    """aiokafka."""

    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            partition_assignment_strategy=[_AIOKAFKA_ASSIGNORS[self.assignor]],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=100,
            retry_backoff_ms=50,
            metadata_max_age_ms=1000,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            **self.settings,
        )
        await consumer.start()
        try:
            while not self._leaving.is_set():
                polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
                self.note((one.partition, one.offset, one.value) for records in polled.values() for one in records)
                self.now_owns(part.partition for part in consumer.assignment())
                if self._dirty:
                    try:
                        await consumer.commit()
                        self._dirty = False
                    except AiokafkaError:
                        continue  # as above
        finally:
            await consumer.stop()


MEMBERS: dict[str, type[Member]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


def shared_out(members: Iterable[Member], partitions: int) -> None:
    """Wait until every member has partitions, and every partition one member."""
    listed = list(members)

    def is_shared() -> bool:
        for member in listed:
            member.check()
        owned = [number for member in listed for number in member.assignment]
        return sorted(owned) == list(range(partitions)) and all(member.assignment for member in listed)

    names = [type(member).__name__ for member in listed]
    eventually(is_shared, f"{names} share {partitions} partitions")
