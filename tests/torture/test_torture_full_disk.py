"""A full disk (fault 19): no acknowledgement is a lie, reads go on, and writes go on when there is room."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from torture_batches import Ledger
from torture_broker import BrokerProcess
from torture_clients import SteadyProducer, check_producer, read_back, wait_until
from torture_form import Torture
from torture_mounts import Ext4Image, mounted_tmpfs
from torture_wire import Wire

from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.core.history import NullRecorder

TOPIC = "orders"
PARTITIONS = 3
DISK_MEGABYTES = 24
ROOM_BYTES = 6 * 1024 * 1024
"""A file that takes up room beforehand, and is deleted to make some."""
REFUSALS = 20
COMMITS_MAX = 3000
CASES = (("tmpfs", "always"), ("ext4", "os"), ("tmpfs", "os"), ("ext4", "always"))


@contextmanager
def small_disk(kind: str, folder: Path) -> Iterator[Path]:
    """Give a folder on a file system of its own."""
    if kind == "tmpfs":
        with mounted_tmpfs(folder, DISK_MEGABYTES) as mounted:
            yield mounted
    else:
        with Ext4Image(folder, DISK_MEGABYTES).mounted() as mounted:
            yield mounted


class FullDisk:
    """One broker on one small disk."""

    def __init__(self, torture: Torture, broker: BrokerProcess, filler: Path) -> None:
        self.torture = torture
        self.broker = broker
        self.filler = filler
        self.ledger = Ledger(torture.random)
        self.committed = -1
        filler.write_bytes(b"\1" * ROOM_BYTES)
        broker.start()
        self.wire = Wire(broker.bootstrap)
        assert self.wire.create_topic(TOPIC, PARTITIONS) == 0
        assert self._commit(0) == 0

    def fill(self) -> None:
        """Write until every partition has refused many times."""
        refused = dict.fromkeys(range(PARTITIONS), 0)
        while min(refused.values()) < REFUSALS:
            partition = self.torture.random.randrange(PARTITIONS)
            # Smaller and smaller ones: to the last byte.
            code = self.ledger.produce(self.wire, TOPIC, partition, 60_000 >> min(refused.values()) // 2 or 4)
            assert code in (0, ErrorCode.KAFKA_STORAGE_ERROR), f"error {code} is not what a client retries"
            refused[partition] += code != 0
        self.torture.say(f"full: {self.ledger.batches} batches acknowledged, {sum(refused.values())} refused")

    def commit_until_refused(self) -> None:
        """Commit rising positions: what OffsetFetch answers is always the last that was acknowledged."""
        refused = 0
        for position in range(1, COMMITS_MAX):
            refused += self._commit(position) != 0
            assert self._shown() == self.committed, "a refused commit is shown"
            if refused == REFUSALS:
                break
        self.torture.say(
            f"commits: {self.committed} acknowledged, {refused} refused, the last acknowledged one is shown"
        )

    def read_while_full(self) -> None:
        """Everything can be read, by us and by a foreign client."""
        besides = self.ledger.check(self.wire)
        ends = {partition: self.wire.log_end(TOPIC, partition) for partition in range(PARTITIONS)}
        records = sum(map(len, read_back(self.broker.bootstrap, TOPIC, ends).values()))
        self.torture.say(f"reads go on: {records} records read ({besides} batches there that were not acknowledged)")

    def make_room(self) -> None:
        """Writes, commits and topics go on without a restart; also those of a client that was waiting for it."""
        waiting = SteadyProducer(self.broker.bootstrap, TOPIC, PARTITIONS, "waiting", NullRecorder())
        waiting.start()
        wait_until(lambda: sum(waiting.sent.values()) > 100, "the waiting producer has sent something")
        self.filler.unlink()
        for partition in range(PARTITIONS):
            wait_until(partial(self._takes, partition), f"partition {partition} takes writes")
        wait_until(lambda: len(waiting.acknowledged) > 100, "the waiting producer goes on")
        waiting.finish()
        wait_until(lambda: self._commit(self.committed + 1) == 0, "commits are taken")
        assert self.wire.create_topic("later", 1) == 0
        self.torture.say(
            f"room: writes go on, {len(waiting.acknowledged)} records of a client that waited came through"
        )
        self.waiting = waiting

    def restart(self) -> None:
        """Whichever way it ends: what was acknowledged is there."""
        self.wire.close()
        end = self.torture.random.choice((self.broker.kill, self.broker.stop))
        end()
        self.broker.start()
        with Wire(self.broker.bootstrap) as self.wire:
            besides = self.ledger.check(self.wire)
            assert self._shown() == self.committed
            ends = {partition: self.wire.log_end(TOPIC, partition) for partition in range(PARTITIONS)}
        check_producer(self.waiting, read_back(self.broker.bootstrap, TOPIC, ends))
        self.torture.say(
            f"after {end.__name__} and start: {self.ledger.batches} acknowledged batches there, {besides} others"
        )

    def _takes(self, partition: int) -> bool:
        return self.ledger.produce(self.wire, TOPIC, partition, 1000) == 0

    def _commit(self, position: int) -> int:
        code = self.wire.commit("readers", TOPIC, {0: position})
        if code == 0:
            self.committed = position
        return code

    def _shown(self) -> int:
        return self.wire.committed("readers", TOPIC, [0])[0]


@pytest.mark.root
def test_a_full_disk_makes_no_acknowledgement_a_lie(torture: Torture, tmp_path: Path) -> None:
    """A small disk is filled to the last byte, read while it is full, given room, and started again."""
    for number, (kind, flush) in enumerate(CASES[: torture.pick(1, len(CASES))]):
        torture.say(f"{kind} of {DISK_MEGABYTES} MB, flush {flush}")
        logs = tmp_path / "broker.log"
        with (
            small_disk(kind, tmp_path / str(number)) as disk,
            BrokerProcess(disk / "data", logs, segment_bytes=1024 * 1024, flush=flush) as broker,
        ):
            case = FullDisk(torture, broker, disk / "filler")
            with case.wire:
                case.fill()
                case.read_while_full()
                case.commit_until_refused()
                case.read_while_full()
                case.make_room()
                case.restart()
