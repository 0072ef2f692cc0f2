"""Moves keyed records through the embedded broker and two foreign clients of one group, then judges what happened.

    python examples/demo_broker.py [--records N] [--history FOLDER]

confluent-kafka produces (idempotent, acks=all). kafka-python consumes alone at first; aiokafka joins while records are
sent and consumed, the group rebalances, and both go on to the end. All of them record a history; the oracle, which
knows nothing of the broker or the clients, judges it. The last line is the verdict; the exit code is 0 if it is ok.
"""

import argparse
import asyncio
import logging
import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Table

from anabranch import Broker
from anabranch.core.history import Begun, Committed, Ended, Event, Sent, Settled
from anabranch.testing.history import HistoryWriter, read_history
from anabranch.testing.oracle import judge

TOPIC = "demo"
GROUP = "demo"
PARTITIONS = 4
KEYS = 1_000
DEADLINE_S = 55.0
COMMIT_INTERVAL_S = 0.2
RECORDS_PER_POLL = 2_000
SENDING_MAX = 50_000
JOIN, STOP = "join", "stop"
SPAWN = multiprocessing.get_context("spawn")


class Status(NamedTuple):
    """What a client tells the parent process now and then."""

    taken: int
    owned: tuple[int, ...]
    committed: dict[int, int]


class Work(NamedTuple):
    """What a client's process is given."""

    name: str
    bootstrap: str
    folder: str
    pipe: Connection


class Member:
    """One client's account of what it owns, has taken and has committed; the history hears of it as it happens."""

    def __init__(self, work: Work) -> None:
        logging.basicConfig(level=logging.ERROR)  # a client's warning that its group rebalances is no news here
        self._work = work
        self._history = HistoryWriter(work.folder, work.name)
        self._epochs = dict.fromkeys(range(PARTITIONS), 0)
        self._owned: tuple[int, ...] = ()
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._sequences: dict[bytes, int] = {}
        self._taken = 0
        self._committed_s = 0.0

    def assigned(self, partitions: Iterable[int]) -> None:
        """Begin a new epoch of each partition."""
        self._owned = tuple(sorted(partitions))
        for partition in self._owned:
            self._epochs[partition] += 1

    def revoked(self) -> None:
        """Forget what is no longer ours; it has been committed."""
        self._owned = ()
        self._positions.clear()

    def take(self, partition: int, records: Sequence[Any]) -> None:
        """Handle records: the handler only looks whether key, value and sequence fit together."""
        events: list[Event] = []
        for record in records:
            identity = (self._work.name, self._epochs[partition], TOPIC, partition, record.offset, record.key, "look")
            right = self._looks_right(record.key, record.value)
            events += [Begun(*identity), Ended(*identity, outcome="done" if right else "failed")]
            if right:
                events.append(Settled(*identity[:5]))
        self._history.record(events)
        self._positions[partition] = records[-1].offset + 1
        self._taken += len(records)

    def uncommitted(self, *, idle: bool = True) -> dict[int, int]:
        """Give the positions to commit now: all of them when there is nothing else to do, else at intervals."""
        if not idle and time.monotonic() - self._committed_s < COMMIT_INTERVAL_S:
            return {}
        return {number: at for number, at in self._positions.items() if self._committed.get(number) != at}

    def committed(self, positions: dict[int, int]) -> None:
        """Note that the coordinator has stored these positions."""
        self._history.record([Committed(self._work.name, GROUP, TOPIC, *item) for item in positions.items()])
        self._committed |= positions
        self._committed_s = time.monotonic()

    def told(self) -> bool:
        """Tell the parent how far we are. False if it wants us to stop."""
        self._work.pipe.send(Status(self._taken, self._owned, self._committed))
        return not self._work.pipe.poll()

    def _looks_right(self, key: bytes, value: bytes) -> bool:
        named, _, number = value.partition(b":")
        before, self._sequences[key] = self._sequences.get(key, -1), int(number)
        return named == key and int(number) > before


def settings(work: Work) -> dict[str, Any]:
    """Give the settings that both clients share, by the same names."""
    return {
        "bootstrap_servers": work.bootstrap,
        "group_id": GROUP,
        "client_id": work.name,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
    }


def consume_with_kafka_python(work: Work) -> None:
    """Be a member of the group through kafka-python, until told to stop."""
    from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    def stored(positions: dict[int, int]) -> dict[Any, Any]:
        return {TopicPartition(TOPIC, number): OffsetAndMetadata(at, "", -1) for number, at in positions.items()}

    class Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
        async def on_partitions_revoked(self, _: Any) -> None:
            if positions := member.uncommitted():
                await consumer.commit_async(stored(positions))
                member.committed(positions)
            member.revoked()

        async def on_partitions_assigned(self, assigned: Any) -> None:
            member.assigned(each.partition for each in assigned)

    member = Member(work)
    if work.pipe.recv() != JOIN:
        return
    consumer = KafkaConsumer(**settings(work), partition_assignment_strategy=[RangePartitionAssignor])
    consumer.subscribe([TOPIC], listener=Listener())
    # Without its topic's metadata kafka-python 3.0 joins with nothing to assign and joins again when it comes; it loses
    # that second assignment if a poll times out meanwhile. So the metadata comes first.
    consumer.partitions_for_topic(TOPIC)
    while member.told():
        batches = consumer.poll(timeout_ms=100, max_records=RECORDS_PER_POLL)
        for partition, records in batches.items():
            member.take(partition.partition, records)
        if positions := member.uncommitted(idle=not batches):
            consumer.commit(stored(positions))
            member.committed(positions)
    consumer.close()


def consume_with_aiokafka(work: Work) -> None:
    """Be a member of the group through aiokafka, until told to stop."""
    asyncio.run(_consume_with_aiokafka(work))


async def _consume_with_aiokafka(work: Work) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    async def commit(positions: dict[int, int]) -> None:
        if positions:
            await consumer.commit({TopicPartition(TOPIC, number): at for number, at in positions.items()})
            member.committed(positions)

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
        async def on_partitions_revoked(self, _: Any) -> None:
            await commit(member.uncommitted())
            member.revoked()

        async def on_partitions_assigned(self, assigned: Any) -> None:
            member.assigned(each.partition for each in assigned)

    member = Member(work)
    if work.pipe.recv() != JOIN:
        return
    consumer = AIOKafkaConsumer(**settings(work), partition_assignment_strategy=(RangePartitionAssignor,))
    consumer.subscribe([TOPIC], listener=Listener())
    await consumer.start()
    while member.told():
        batches = await consumer.getmany(timeout_ms=100, max_records=RECORDS_PER_POLL)
        for partition, records in batches.items():
            member.take(partition.partition, records)
        await commit(member.uncommitted(idle=not batches))
    await consumer.stop()


class Client:
    """A client's process, as the parent sees it."""

    def __init__(self, name: str, run: Callable[[Work], None], bootstrap: str, folder: str) -> None:
        self.name = name
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=run, args=(Work(name, bootstrap, folder, theirs),), daemon=True)
        self.process.start()
        theirs.close()
        self.status = Status(0, (), {})
        self.partitions: set[int] = set()

    def listen(self) -> None:
        """Take what it has told. Raises if it has died."""
        try:
            while self.pipe.poll():
                self.status = self.pipe.recv()
                self.partitions.update(self.status.owned)
        except EOFError:
            self.process.join()
            raise ConnectionError(f"{self.name} ended with exit code {self.process.exitcode}; see above") from None

    def stop(self) -> None:
        """Ask it to leave the group, and wait; then insist."""
        with suppress(OSError):  # it may have gone by itself
            self.pipe.send(STOP)
        self.process.join(5)
        self.process.kill()
        self.process.join()


class Sender:
    """Produces the records and records what was acknowledged, and at which offset."""

    def __init__(self, bootstrap: str, folder: str) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)
        options = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "log_level": 4}
        self._producer = Producer(options)
        self._history = HistoryWriter(folder, "confluent-kafka")
        self._sent: list[Event] = []
        self.ends: dict[int, int] = {}

    def send(self, numbers: range) -> None:
        """Produce these records; return when each is acknowledged or given up."""
        for number in numbers:
            key = b"key-%d" % (number % KEYS)
            value = b"%b:%d" % (key, number // KEYS)
            self._producer.produce(TOPIC, value, key, on_delivery=self._delivered)
            self._producer.poll(0 if len(self._producer) < SENDING_MAX else 0.01)
        self._producer.flush(DEADLINE_S)
        self._history.record(self._sent)
        self._sent.clear()

    def _delivered(self, error: Any, message: Any) -> None:
        key, sequence = message.key(), int(message.value().partition(b":")[2])
        if error is not None:
            self._sent.append(Sent(TOPIC, None, None, key, sequence))
            return
        partition, offset = message.partition(), message.offset()
        self._sent.append(Sent(TOPIC, partition, offset, key, sequence))
        self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)


class Watch:
    """Listens to the clients and shows how far they are: a bar on a terminal, else a line a second."""

    def __init__(self, clients: list[Client], records: int, progress: Progress) -> None:
        self._clients = clients
        self.records = records
        self._progress = progress
        self._bar = progress.add_task("consumed", total=records, rate=0)
        self._started_s = self._shown_s = time.monotonic()

    @property
    def taken(self) -> int:
        return sum(client.status.taken for client in self._clients)

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Listen until a condition holds; give up at the demo's deadline, and say on what."""
        while not condition():
            if time.monotonic() - self._started_s > DEADLINE_S:
                state = ", ".join(f"{client.name} {client.status}" for client in self._clients)
                raise TimeoutError(f"gave up after {DEADLINE_S:.0f} s of waiting until {what}: {state}")
            wait([client.pipe for client in self._clients], timeout=0.1)
            for client in self._clients:
                client.listen()
            rate = self.taken / (time.monotonic() - self._started_s)
            self._progress.update(self._bar, completed=self.taken, rate=rate)
            if time.monotonic() - self._shown_s >= 1:
                self.show()

    def show(self) -> None:
        """Tell the share and the rate in one line, where there is no bar to see."""
        self._shown_s = time.monotonic()
        if self._progress.disable:
            rate = self.taken / (self._shown_s - self._started_s)
            print(f"consumed {self.taken / self.records:4.0%} {self.taken:>9,} records {rate:>9,.0f}/s", flush=True)


def move(bootstrap: str, folder: str, records: int, console: Console) -> bool:
    """Send and consume all records; tell who did what. True if the group's positions are where they must be."""
    sender = Sender(bootstrap, folder)
    clients: list[Client] = []
    try:
        clients.append(Client("kafka-python", consume_with_kafka_python, bootstrap, folder))
        clients.append(Client("aiokafka", consume_with_aiokafka, bootstrap, folder))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        columns = (*Progress.get_default_columns(), TextColumn("{task.fields[rate]:,.0f}/s"))
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            follow(Watch(clients, records, progress), sender, *clients)
    except (TimeoutError, ConnectionError) as error:
        console.print(str(error), soft_wrap=True)  # what has happened up to here is judged all the same
    finally:
        for client in clients:
            client.stop()
    stored = _stored(bootstrap)
    console.print(_table(clients, sender.ends, stored))
    return stored == sender.ends


def follow(watch: Watch, sender: Sender, first: Client, second: Client) -> None:
    """Play the demo: one consumer, then two, while the records come."""
    first.pipe.send(JOIN)
    sender.send(range(watch.records // 10))
    watch.until("the first client has records", lambda: watch.taken > 0)
    second.pipe.send(JOIN)
    sender.send(range(watch.records // 10, watch.records // 2))
    watch.until("each owns half", lambda: len(first.status.owned) == PARTITIONS // 2 == len(second.status.owned))
    owners = ", ".join(f"{client.name} has {list(client.status.owned)}" for client in (first, second))
    print(f"rebalanced, {watch.taken:,} records consumed by now: {owners}", flush=True)
    sender.send(range(watch.records // 2, watch.records))
    watch.until("all is committed", lambda: watch.taken >= watch.records and _committed([first, second]) == sender.ends)
    watch.show()


def _committed(clients: list[Client]) -> dict[int, int]:
    return dict(sorted(pair for client in clients for pair in client.status.committed.items()))  # the highest wins


def _stored(bootstrap: str) -> dict[int, int]:
    """Ask the broker, through a third client, what the group has committed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    found = consumer.committed([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)], timeout=10)
    consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def _table(clients: list[Client], ends: dict[int, int], stored: dict[int, int]) -> Table:
    table = Table("client", "records", "partitions", title=f"group {GROUP!r}, topic {TOPIC!r}")
    for client in clients:
        table.add_row(client.name, f"{client.status.taken:,}", " ".join(map(str, sorted(client.partitions))))
    table.add_section()
    table.add_row("group committed", f"{sum(stored.values()):,} of {sum(ends.values()):,}", "")
    return table


def main() -> int:
    """Run the demo and give its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000, help="how many records to move (default 100,000)")
    parser.add_argument("--history", help="keep the history in this folder (default: a temporary one)")
    options = parser.parse_args()
    if options.records < 10:
        parser.error("--records must be at least 10")
    console = Console()
    started_s = time.monotonic()
    resource_tracker.ensure_running()  # it resets the mask when it starts, so it starts before
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what we start does not hear Ctrl-C: we stop it in order
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as temporary:
            folder = options.history or temporary
            with Broker() as broker:
                console.print(f"broker listening on {broker.bootstrap}, {options.records:,} records, {KEYS:,} keys")
                positioned = move(broker.bootstrap, folder, options.records, console)
            verdict = judge(read_history(folder), records=options.records, duplicates_max=0)
    except KeyboardInterrupt:
        print("interrupted: broker and clients are stopped", file=sys.stderr)
        return 130
    console.print(f"{time.monotonic() - started_s:.1f} s in all")
    print(verdict.line() if verdict.ok else verdict.report())
    return 0 if verdict.ok and positioned else 1


if __name__ == "__main__":
    sys.exit(main())
