"""Power cuts (fault 18): an ext4 on a loop device stops taking writes at a random moment, and its memory is gone.

With flush=always all that was acknowledged is there when the power is back: records, topics, commits, producer ids.
With flush=os the same test must show loss, or it would prove nothing.
"""

import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from torture_batches import Ledger
from torture_broker import BrokerProcess
from torture_clients import wait_until
from torture_form import Torture
from torture_mounts import Ext4Image
from torture_wire import Wire

PARTITIONS = 3
SEGMENT_BYTES = 256 * 1024
DISK_MEGABYTES = 192


class Answer(NamedTuple):
    """An acknowledged append or commit, and when it was asked for and answered."""

    position: int
    asked_at: float
    answered_at: float

    def is_doubtful(self, cut: tuple[float, float]) -> bool:
        """Answer whether it was under way at the cut: no disk loses power and says yes, this simulation of one may."""
        began, ended = cut
        return self.asked_at < ended and self.answered_at > began


class Writer(threading.Thread):
    """Appends to one partition over its own connection and commits what was acknowledged, until the power is gone."""

    def __init__(self, bootstrap: str, ledger: Ledger, topic: str, partition: int) -> None:
        super().__init__(name=f"{topic}-{partition}", daemon=True)
        self.place = (topic, partition)
        self._address = bootstrap
        self._ledger = ledger
        self._appends: list[Answer] = []
        self._commits: list[Answer] = []
        self.attempted = -1
        self.refused = 0

    @property
    def committed(self) -> int:
        return self._commits[-1].position if self._commits else -1

    def run(self) -> None:
        try:
            with Wire(self._address) as wire:
                while True:
                    self._write(wire)
        except OSError:
            return  # the broker is gone: what was not answered was not acknowledged

    def forget_doubtful(self, cut: tuple[float, float]) -> int:
        """Take back what was under way at the cut; answer how many appends that were."""
        doubtful = [answer for answer in self._appends if answer.is_doubtful(cut)]
        for answer in doubtful:
            del self._ledger.acknowledged[self.place][answer.position]
        self._commits = [answer for answer in self._commits if not answer.is_doubtful(cut)]
        return len(doubtful)

    def _write(self, wire: Wire) -> None:
        asked_at, (topic, partition) = time.monotonic(), self.place
        if self._ledger.produce(wire, topic, partition):
            self.refused += 1
            return
        base_offset = next(reversed(self._ledger.acknowledged[self.place]))
        self._appends.append(Answer(base_offset, asked_at, time.monotonic()))
        asked_at = time.monotonic()
        self.attempted = self._ledger.ends[self.place]
        if wire.commit("readers", topic, {partition: self.attempted}) == 0:
            self._commits.append(Answer(self.attempted, asked_at, time.monotonic()))


class PowerCuts:
    """One image over several cuts; what was acknowledged before an earlier cut must outlive later ones too."""

    def __init__(self, torture: Torture, image: Ext4Image, logs: Path, flush: str) -> None:
        self.torture = torture
        self.image = image
        data_dir = image.mountpoint / "data"
        self.broker = BrokerProcess(data_dir, logs, segment_bytes=SEGMENT_BYTES, flush=flush)
        self.ledgers: list[Ledger] = []
        self.writers: list[list[Writer]] = []
        self.producer_ids: list[int] = []

    def round(self, number: int) -> None:
        """Write to a new topic, cut the power under it, and end the broker."""
        topic = f"topic-{number}"
        ledger = Ledger(self.torture.random)
        with self.image.mounted(), self.broker:
            self.broker.start()
            with Wire(self.broker.bootstrap) as wire:
                self._producer_id(wire)
                assert wire.create_topic(topic, PARTITIONS) == 0
            writers = [Writer(self.broker.bootstrap, ledger, topic, partition) for partition in range(PARTITIONS)]
            for writer in writers:
                writer.start()
            target = self.torture.random.randrange(10, 200)
            wait_until(lambda: ledger.batches >= target, "batches are acknowledged")
            cut = self.image.cut_power()
            # What is acknowledged from here on would be a lie as well: the broker lives on for a moment without a disk.
            wait_until(lambda: all(writer.refused for writer in writers) or not _alive(writers), "writes are refused")
            self.broker.kill()
            for writer in writers:
                writer.join()
        doubtful = sum(writer.forget_doubtful(cut) for writer in writers)
        self.ledgers.append(ledger)
        self.writers.append(writers)
        refused = sum(writer.refused for writer in writers)
        self.torture.say(
            f"cut {number}: {ledger.batches} batches acknowledged before, {doubtful} during it, {refused} refused"
        )

    def look(self) -> tuple[int, int]:
        """Bring the power back; answer how many acknowledged batches, and how many commits, are gone."""
        lost = commits = 0
        with self.image.mounted(), self.broker:
            self.broker.start()
            with Wire(self.broker.bootstrap) as wire:
                self._producer_id(wire)
                topics = {topic.name for topic in wire.metadata().topics}
                for number, (ledger, writers) in enumerate(zip(self.ledgers, self.writers, strict=True)):
                    topic = f"topic-{number}"
                    if topic not in topics:
                        lost += ledger.batches
                        continue
                    lost += ledger.lost(wire)
                    shown = wire.committed("readers", topic, list(range(PARTITIONS)))
                    commits += sum(
                        not writer.committed <= shown[p] <= writer.attempted for p, writer in enumerate(writers)
                    )
                if not lost:
                    for ledger in self.ledgers:
                        ledger.check(wire)
            self.broker.stop()
        return lost, commits

    def _producer_id(self, wire: Wire) -> None:
        self.producer_ids.append(wire.producer_id())


def _alive(writers: list[Writer]) -> bool:
    return any(writer.is_alive() for writer in writers)


@pytest.mark.root
def test_a_power_cut_takes_nothing_that_was_synced(torture: Torture, tmp_path: Path) -> None:
    """With flush=always acknowledged records, commits and topics outlive power cuts; with flush=os it shows loss."""
    cuts = PowerCuts(torture, Ext4Image(tmp_path / "always", DISK_MEGABYTES), tmp_path / "always.log", "always")
    for number in range(torture.pick(2, 10)):
        cuts.round(number)
        lost, commits = cuts.look()
        assert not lost, f"{lost} acknowledged batches are gone"
        assert not commits, f"{commits} acknowledged commits are gone"
    assert len(set(cuts.producer_ids)) == len(cuts.producer_ids), "a producer id was handed out twice"
    torture.say(
        f"flush always: {sum(ledger.batches for ledger in cuts.ledgers)} batches acknowledged, all of them there"
    )
    teeth = PowerCuts(torture, Ext4Image(tmp_path / "os", DISK_MEGABYTES), tmp_path / "os.log", "os")
    teeth.round(0)
    lost, commits = teeth.look()
    torture.say(f"flush os: {lost} of {teeth.ledgers[0].batches} acknowledged batches lost, as it should be")
    assert lost, "with flush=os a power cut must cost something: this test cannot see loss"
