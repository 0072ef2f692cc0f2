"""Well-behaved clients (confluent-kafka) that go on through whatever happens to the broker, and keep book of it."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from anabranch.core.history import Begun, Committed, Ended, Recorder, Sent, Settled

WAIT_S_MAX = 60.0
QUIET = {"log_level": 2}
"""Only what is critical: lost connections are what the suite is made of."""
RECONNECT = {**QUIET, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "socket.timeout.ms": 10_000}
_FILLER = random.Random(0).randbytes(1 << 16)


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = WAIT_S_MAX) -> None:
    """Wait on a condition, with a deadline that only a broken broker meets."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {deadline_s:g} s in vain: {what}"
        time.sleep(0.005)  # chaos with real processes: there is no clock of ours to jump


def content(producer: str, partition: int, sequence: int) -> bytes:
    """Make a record's value: its name, and a filler of 0 to 2 KB that follows from it."""
    head = f"{producer}/{partition}/{sequence}/".encode()
    return head + _FILLER[sequence % 4096 : sequence % 4096 + sequence * 7919 % 2000]


class Book(Protocol):
    """What a producer knows of its records; see `SteadyProducer`."""

    name: str
    sent: dict[int, int]
    acknowledged: dict[tuple[int, int], int]
    errors: list[str]


class SteadyProducer(threading.Thread):
    """An idempotent producer with acks=all that never gives up, and knows what was acknowledged."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        name: str,
        recorder: Recorder,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)  # a test that fails does not wait for us
        self._topic = topic
        self._random = random.Random(name)
        self._ending = threading.Event()
        self._recorder = recorder
        self._partitions = partitions
        self.sent: dict[int, int] = defaultdict(int)
        """By partition: how many were sent; they are numbered from 0."""
        self.acknowledged: dict[tuple[int, int], int] = {}
        """Offset by partition and sequence; -1 when the answer did not say."""
        self.errors: list[str] = []
        self.silence_s_max = 0.0
        """The longest time between two acknowledgements."""
        self._heard_at = time.monotonic()
        self.failure: BaseException | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 0,  # for ever: what times out leaves a hole in the sequence
                "queue.buffering.max.messages": 1000,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "error_cb": self._on_error,
                **RECONNECT,
                **(options or {}),
            }
        )

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                for _ in range(20):
                    self._send()
                self._producer.poll(0.01)  # about 2,000 records a second: the point is when, not how many
            left = self._producer.flush(WAIT_S_MAX)
            assert left == 0, f"{left} records of {self.name} were never acknowledged"
        except BaseException as error:  # raised again by finish()
            self.failure = error

    def finish(self) -> None:
        """Send no more, and wait until all that was sent is acknowledged."""
        self._ending.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """Stop soon, whatever is left; for the end of a test that failed."""
        self._ending.set()

    def _send(self) -> None:
        partition = self._random.randrange(self._partitions)
        sequence = self.sent[partition]
        value = content(self.name, partition, sequence)

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(partition, sequence, error, message)

        try:
            self._producer.produce(self._topic, value, self.name.encode(), partition, on_delivery=delivered)
        except BufferError:
            self._producer.poll(0.05)
        else:
            self.sent[partition] = sequence + 1

    def _delivered(self, partition: int, sequence: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(f"record {sequence} of {self.name} to partition {partition}: {error}")
            return
        now = time.monotonic()
        self.silence_s_max = max(self.silence_s_max, now - self._heard_at)
        self._heard_at = now
        offset = message.offset()
        self.acknowledged[partition, sequence] = offset if offset is not None else -1
        known = offset if offset is not None and offset >= 0 else None
        self._recorder.record([Sent(self._topic, partition, known, self.name.encode(), sequence)])

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"fatal: {error}")


class SteadyMember(threading.Thread):
    """A consumer in a group that commits as it goes, and knows which of its commits were acknowledged."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        name: str,
        recorder: Recorder,
        instance: str | None,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._topic = topic
        self._group = group
        self._recorder = recorder
        self._ending = threading.Event()
        self._epochs: dict[int, int] = defaultdict(int)
        self._processed: dict[int, int] = {}
        self.assignments = 0
        self.assigned: set[int] = set()
        self.records = 0
        self.committed: dict[int, int] = {}
        """By partition: the highest position whose commit was acknowledged."""
        self.refused: list[str] = []
        self.failure: BaseException | None = None
        static = {"group.instance.id": instance} if instance else {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                **static,
                **RECONNECT,
                **(options or {}),
            }
        )

    def run(self) -> None:
        try:
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
            while not self._ending.is_set():
                self._process(self._consumer.consume(500, 0.05))
        except BaseException as error:  # raised again by finish()
            self.failure = error
        finally:
            self._consumer.close()

    def finish(self) -> None:
        self._ending.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """Stop soon; for the end of a test that failed."""
        self._ending.set()

    def _process(self, messages: list[Message]) -> None:
        events: list[Any] = []
        for message in messages:
            if message.error() is not None:
                self.refused.append(str(message.error()))
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            where = (self.name, self._epochs[partition], self._topic, partition, offset)
            key = message.key()
            assert isinstance(key, bytes)
            events += (Begun(*where, key, "read"), Ended(*where, key, "read"), Settled(*where))
            self._processed[partition] = offset + 1
            self.records += 1
        if events:
            self._recorder.record(events)
            self._commit()

    def _commit(self) -> None:
        wanted = [TopicPartition(self._topic, partition, position) for partition, position in self._processed.items()]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self.refused.append(str(error))
            return
        acknowledged = [part for part in done or [] if part.error is None]
        self._recorder.record(
            [Committed(self.name, self._group, self._topic, part.partition, part.offset) for part in acknowledged]
        )
        self.committed.update({part.partition: part.offset for part in acknowledged})

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1
        self.assigned = {part.partition for part in partitions}
        for part in partitions:
            self._epochs[part.partition] += 1

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned.clear()
        for part in partitions:
            self._processed.pop(part.partition, None)


def read_back(bootstrap: str, topic: str, ends: dict[int, int]) -> dict[int, list[tuple[int, bytes]]]:
    """Read partitions from the beginning to their ends with a foreign client; answer offsets and values."""
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in ends}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "read-back", "check.crcs": True, **RECONNECT})
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition, end in ends.items() if end])
        missing = sum(ends.values())
        deadline = time.monotonic() + WAIT_S_MAX
        while missing > 0:
            assert time.monotonic() < deadline, f"{missing} records of {topic} cannot be read back"
            for message in consumer.consume(min(5000, missing), 1.0):
                assert message.error() is None, message.error()
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                assert offset is not None
                assert isinstance(value, bytes)
                found[partition].append((offset, value))
                missing -= 1
    finally:
        consumer.close()
    return found


def check_producer(producer: Book, found: dict[int, list[tuple[int, bytes]]]) -> int:
    """Check that a producer's records are there once, in order, where the acknowledgements said; answer how many."""
    assert not producer.errors, producer.errors[:3]
    head = f"{producer.name}/".encode()
    for partition, records in found.items():
        mine = [(offset, value) for offset, value in records if value.startswith(head)]
        sequences = [int(value.split(b"/", 3)[2]) for _, value in mine]
        _check_sequences(producer, partition, sequences)
        for (offset, value), sequence in zip(mine, sequences, strict=True):
            assert value == content(producer.name, partition, sequence), f"record {sequence} is not what was sent"
            said = producer.acknowledged[partition, sequence]
            assert said in (-1, offset), f"record {sequence} was acknowledged at {said} and is at {offset}"
    return len(producer.acknowledged)


def _check_sequences(producer: Book, partition: int, sequences: list[int]) -> None:
    sent = producer.sent[partition]
    acknowledged = {sequence for part, sequence in producer.acknowledged if part == partition}
    assert acknowledged == set(range(sent)), f"{producer.name}: not all that was sent was acknowledged"
    lost = sorted(acknowledged - set(sequences))
    assert not lost, (
        f"LOST: {len(lost)} acknowledged records of {producer.name} in partition {partition}, first {lost[:5]}"
    )
    repeated = len(sequences) - len(set(sequences))
    assert not repeated, f"DUPLICATES: {repeated} records of {producer.name} in partition {partition}"
    assert sequences == sorted(sequences), f"REORDERED: records of {producer.name} in partition {partition}"
