"""The world of one contract test: a topic, a group, a folder with the history, and a foreign client to look with.

What a test knows of a run it knows from here: the history that the run recorded, and what any other client of the same
Kafka can see (records in topics, committed positions, members of the group).
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from anabranch.core.history import Begun, Committed, Ended, Event, Sent, Settled
from anabranch.testing.history import HistoryWriter, read_history
from anabranch.testing.oracle import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from anabranch.testing.oracle import Verdict

T = TypeVar("T")
E = TypeVar("E", Sent, Begun, Ended, Settled, Committed)

DEADLINE_S = 30.0
"""Far above what anything here takes; a test that reaches it has found a fault."""
POLL_S = 0.02


class Given(NamedTuple):
    """A record to be sent. The value is the script that `contract_handlers` follow, or raw bytes, or null."""

    key: bytes | None
    value: Mapping[str, Any] | bytes | None = {}  # a default that nobody changes
    partition: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = 0


class Found(NamedTuple):
    """A record that was read back."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def eventually(condition: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Ask until the answer is true and give it; fail with `what` was awaited."""
    end = time.monotonic() + deadline_s
    while not (answer := condition()):
        assert time.monotonic() < end, f"waited {deadline_s:g} s in vain: {what}"
        time.sleep(POLL_S)
    return answer


@cache
def _producer(bootstrap: str) -> Producer:
    """One for all tests of a process: a new one waits half a second for its producer id."""
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 2})


@dataclass
class World:
    """One topic and one group of one test."""

    bootstrap: str
    folder: Path
    group: str = field(default_factory=lambda: f"group-{secrets.token_hex(4)}")
    topic: str = field(default_factory=lambda: f"topic-{secrets.token_hex(4)}")
    broker: Any = None
    """The embedded broker, where a test may freeze or restart it; None on Apache Kafka."""

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        self.sequences: Counter[bytes] = Counter()
        self.deaths: dict[int, int] = {}
        """When processes that a test does not name were killed, for the oracle: the workers of a run on Spark."""
        self._sender: HistoryWriter | None = None
        self._looker: Consumer | None = None

    @property
    def histories(self) -> Path:
        """Where every process of this test records."""
        return self.folder / "history"

    # Topics and records

    def create(self, partitions: int = 1, topic: str | None = None, **config: str) -> str:
        """Make a topic; without a name, the test's own."""
        name = topic or self.topic
        settings = {key.replace("_", "."): value for key, value in config.items()}
        wanted = NewTopic(name, partitions, 1, config=settings)
        self.admin.create_topics([wanted], request_timeout=20)[name].result(30)
        eventually(lambda: name in self.admin.list_topics(timeout=10).topics, f"topic {name} is there")
        return name

    def add_partitions(self, total: int) -> None:
        """Give the topic more partitions."""
        self.admin.create_partitions([NewPartitions(self.topic, total)])[self.topic].result(30)

    def send(
        self,
        records: Iterable[Given],
        topic: str | None = None,
        *,
        ordered_by: Callable[[Given], bytes | None] = attrgetter("key"),
    ) -> list[int]:
        """Send records, in order, and wait until all are acknowledged; tell the history. Answers their offsets.

        The oracle judges by what is told here: `ordered_by` is what the pipeline under test should order by.
        """
        name = topic or self.topic
        sent: dict[int, Sent] = {}
        producer = _producer(self.bootstrap)
        listed = list(records)
        for number, given in enumerate(listed):
            acknowledged = partial(sent.__setitem__, number)
            self._produce(producer, name, given, ordered_by(given), acknowledged)
        producer.flush(DEADLINE_S)
        assert len(sent) == len(listed), "not every record was acknowledged"
        events = self._placed([sent[number] for number in range(len(listed))], name)
        if topic is None:
            self.record_sent(events)
        return [event.offset for event in events if event.offset is not None]

    def _placed(self, events: list[Sent], topic: str) -> list[Sent]:
        """Find out offsets that were not told: a record that was sent twice and stored once is acknowledged without."""
        for partition, end in self.ends(topic).items() if any(event.offset is None for event in events) else ():
            numbers = [number for number, event in enumerate(events) if event.partition == partition]
            for number, offset in zip(numbers, range(end - len(numbers), end), strict=True):
                told = events[number].offset
                assert told in {None, offset}, f"somebody else wrote to {topic}/{partition}: {told} is not {offset}"
                events[number] = events[number]._replace(offset=offset)
        return events

    def record_sent(self, events: Sequence[Sent]) -> None:
        """Tell the history what was given to the log."""
        if self._sender is None:
            self._sender = HistoryWriter(self.histories, "sender")
        self._sender.record(events)

    def _produce(
        self,
        producer: Producer,
        topic: str,
        given: Given,
        key: bytes | None,
        acknowledged: Callable[[Sent], None],
    ) -> None:
        sequence = None
        if key is not None:
            sequence = self.sequences[key]
            self.sequences[key] += 1

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            acknowledged(Sent(topic, message.partition(), message.offset(), key, sequence))

        value = given.value if isinstance(given.value, bytes | None) else json.dumps(given.value).encode()
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    given.key,
                    given.partition,
                    delivered,
                    timestamp=given.timestamp_ms,
                    headers=list(given.headers) or None,
                )
                return
            except BufferError:
                producer.poll(0.01)
            except KafkaException as error:
                if error.args[0].name() != "_UNKNOWN_PARTITION":
                    raise
                producer.list_topics(topic, timeout=10)  # it was added since the producer last looked

    def delete_records_below(self, offset: int, partition: int = 0) -> None:
        """Move the log's start, as retention does."""
        wanted = TopicPartition(self.topic, partition, offset)
        for answer in self.admin.delete_records([wanted]).values():
            answer.result(20)

    def ends(self, topic: str | None = None) -> dict[int, int]:
        """Answer the end of each partition of a topic."""
        name = topic or self.topic
        partitions = self.admin.list_topics(name, timeout=10).topics[name].partitions
        wanted = {TopicPartition(name, number): OffsetSpec.latest() for number in partitions}
        return {place.partition: answer.result(10).offset for place, answer in self.admin.list_offsets(wanted).items()}

    def read(self, topic: str) -> list[Found]:
        """Read a topic from its beginning to its present end."""
        ends = {number: end for number, end in self.ends(topic).items() if end > 0}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader-of-the-test",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        found, open_partitions = [], set(ends)
        end = time.monotonic() + DEADLINE_S
        while open_partitions and time.monotonic() < end:
            for message in consumer.consume(1000, 0.1):
                if message.error() is not None:
                    open_partitions.discard(message.partition())
                    continue
                place = (message.partition(), message.offset(), message.key(), message.value())
                found.append(Found(*place, message.headers() or [], message.timestamp()[1]))
        consumer.close()
        return sorted(found)

    # The group, as the coordinator sees it

    def committed(self, topic: str | None = None) -> dict[int, tuple[int, str]]:
        """Answer the group's committed position and its metadata, by partition."""
        if self._looker is None:  # not the admin client: its call for this may crash (anabranch.kafka.committed)
            settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "enable.auto.commit": False}
            self._looker = Consumer(settings)
        name = topic or self.topic
        partitions = self.admin.list_topics(name, timeout=10).topics[name].partitions
        asked = [TopicPartition(name, number) for number in partitions]
        return {
            place.partition: (place.offset, (place.metadata or "").rstrip("\0"))
            for place in self._looker.committed(asked, timeout=20)
            if place.offset >= 0
        }

    def positions(self) -> dict[int, int]:
        """Answer the group's committed positions, by partition."""
        return {number: position for number, (position, _) in self.committed().items()}

    def commit(self, position: int, metadata: str = "", partition: int = 0) -> None:
        """Commit for the group from outside, as another program (or an attacker) would; the group must be empty."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, "enable.auto.commit": False})
        place = TopicPartition(self.topic, partition, position, metadata)
        (done,) = consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()
        assert done.error is None, done.error

    def members(self) -> int:
        """Answer how many members the group has."""
        answer = self.admin.describe_consumer_groups([self.group])[self.group].result(20)
        return len(answer.members)

    # The history

    def events(self, kind: type[E]) -> list[E]:
        """Answer the recorded events of one kind, in the order of the merged history."""
        return [event for event in self.history() if isinstance(event, kind)]

    def history(self) -> list[Event]:
        """Answer all recorded events in order; none when nobody has begun to record."""
        if not any(self.histories.glob("*.history")):
            return []
        return [event for batch in read_history(self.histories) for event in batch.events]

    def settled(self) -> Counter[tuple[int, int]]:
        """Answer how often each (partition, offset) was settled."""
        return Counter((event.partition, event.offset) for event in self.events(Settled))

    def begun(self) -> Counter[tuple[int, int]]:
        """Answer how often a call began for each (partition, offset)."""
        return Counter((event.partition, event.offset) for event in self.events(Begun))

    def verdict(self, **options: Any) -> Verdict:
        """Let the oracle judge."""
        killed = {**self.deaths, **(options.pop("killed", None) or {})}
        return judge(read_history(self.histories), killed=killed, **options)

    def accepts(self, **options: Any) -> Verdict:
        """Assert that the oracle finds nothing wrong, and answer its verdict."""
        verdict = self.verdict(**options)
        assert verdict.ok, verdict.report()
        return verdict

    def flag(self, name: str) -> Path:
        """Answer the path of a file that a script may wait for."""
        return self.folder / name

    def close(self) -> None:
        """Close what was opened."""
        if self._sender is not None:
            self._sender.close()
        if self._looker is not None:
            self._looker.close()
