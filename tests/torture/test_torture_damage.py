"""Damaged files (fault 18): the broker starts, keeps what is good, says what it cut, and never serves a bad CRC.

Three places, each struck after kill -9 and after a clean stop, many partitions at once:

- the last segment: after kill -9 the log ends before its first bad batch. After a clean stop it was vouched for:
  missing bytes end the log, changed ones are answered CORRUPT_MESSAGE;
- an older segment, below the recovery point: what is bad is answered CORRUPT_MESSAGE, everything else is served;
- one file beside the log (an index, a snapshot), or all of them, as kill -9 after the first roll leaves it: nothing is
  lost.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from torture_batches import Ledger, read_log
from torture_broker import BrokerProcess
from torture_clients import WAIT_S_MAX
from torture_damage import INDEX_STRIKES, LOG_STRIKES, StoredBatch, Strike, broken_batches, leave, stored_batches
from torture_form import Torture
from torture_wire import Wire, batches_of

from anabranch.broker.wire.error_codes import ErrorCode

TOPIC = "orders"
SEGMENT_BYTES = 64 * 1024
BATCHES = 30
BATCH_BYTES_MIN = 4200
"""More than the index interval: each batch has an entry of its own, so that a damaged neighbour cannot hide it."""
BATCH_BYTES_MAX = 20_000
PLACES = ("last", "last", "older", "beside", "last", "older", "all beside")


@dataclass
class Case:
    """One partition, what was done to it and what must be left."""

    partition: int
    folder: Path
    batches: list[StoredBatch]
    told: str = "untouched"
    broken: tuple[int, ...] = ()
    """Base offsets of batches that are answered CORRUPT_MESSAGE."""
    log_end: int = 0
    cut: bool = False

    def strike(self, torture: Torture, place: str, *, was_killed: bool) -> None:
        chance = torture.random
        segments = sorted(self.folder.glob("*.log"))
        strike: Strike = leave
        struck = segments[0]
        beside = sorted(path for path in self.folder.iterdir() if path.suffix != ".log")
        if place == "all beside":
            for path in beside:
                path.unlink()
        elif place == "beside":
            struck, strike = chance.choice(beside), chance.choice(INDEX_STRIKES)
        else:
            struck = segments[-1] if place == "last" else chance.choice(segments[:-1])
            strike = chance.choice(LOG_STRIKES)
        size = struck.stat().st_size
        self.told = f"{place}: {struck.name}: {strike(chance, struck)}"
        self.log_end = self.batches[-1].next_offset
        broken = broken_batches(self.batches)
        is_cut = place == "last" and (was_killed or struck.stat().st_size < size)
        self.cut = is_cut and bool(broken)
        if self.cut:
            self.log_end = broken[0].base_offset
        else:
            self.broken = tuple(batch.base_offset for batch in broken)

    def check(self, wire: Wire) -> int:
        """Ask for each batch by itself; answer how many were served."""
        served = 0
        assert wire.log_end(TOPIC, self.partition) >= self.log_end, f"{self}: cut too much"
        for batch in self.batches:
            answer = wire.fetch(TOPIC, self.partition, batch.base_offset, 1)
            expected = ErrorCode.CORRUPT_MESSAGE if batch.base_offset in self.broken else ErrorCode.NONE
            if batch.base_offset >= self.log_end:
                continue  # cut: the offset is given to another batch, or is out of range
            assert answer.error_code == expected, f"{self}: offset {batch.base_offset} is answered {answer.error_code}"
            if expected is ErrorCode.NONE:
                found = batches_of(answer.records)[0]
                assert found.content == batch.data[17:], f"{self}: offset {batch.base_offset} is not what was written"
                served += 1
        return served

    def check_end(self, wire: Wire) -> None:
        end = wire.log_end(TOPIC, self.partition)
        assert end == self.log_end, f"{self}: the log ends at {end}"
        committed = wire.committed("readers", TOPIC, [self.partition])[self.partition]
        assert committed == self.log_end, f"{self}: the group stands at {committed}"
        beyond = wire.fetch(TOPIC, self.partition, end)
        assert (beyond.error_code, batches_of(beyond.records)) == (0, [])

    def __str__(self) -> str:
        return f"{TOPIC}/{self.partition} ({self.told}; {len(self.batches)} batches, to end at {self.log_end})"


def strike_and_check(torture: Torture, folder: Path, *, kill: bool) -> int:
    """Fill many partitions, end the broker, damage each of them once, start and look; answer how many were cut."""
    partitions = torture.pick(14, 21)
    flush = torture.random.choice(("always", "os"))
    logs = folder.with_suffix(".log")
    with BrokerProcess(folder, logs, segment_bytes=SEGMENT_BYTES, flush=flush) as broker:
        cases = _filled(torture, broker, partitions)
        broker.kill() if kill else broker.stop()
        for case in cases:
            case.batches = stored_batches(case.folder)
            case.strike(torture, PLACES[case.partition % len(PLACES)], was_killed=kill)
        seconds = broker.start()
        told = broker.log_lines()
        with Wire(broker.bootstrap) as wire:
            for case in cases:
                case.check_end(wire)
            served = sum(case.check(wire) for case in cases)
            _go_on(torture, wire, cases)
        for case in cases:
            assert not case.cut or f"{TOPIC}/{case.partition}" in told, (
                f"{case}: nothing was said about the cut:\n{told}"
            )
        # What was decided stays decided.
        torture.random.choice((broker.kill, broker.stop))()
        broker.start()
        with Wire(broker.bootstrap) as wire:
            assert sum(case.check(wire) for case in cases) == served
            _go_on(torture, wire, cases)
    cut = sum(case.cut for case in cases)
    corrupt = sum(len(case.broken) for case in cases)
    torture.say(
        f"after {'kill -9' if kill else 'a clean stop'}: {partitions} partitions damaged, started in {seconds:.2f} s, "
        f"{cut} cut and said so, {served} batches served, {corrupt} answered CORRUPT_MESSAGE"
    )
    return cut


def _filled(torture: Torture, broker: BrokerProcess, partitions: int) -> list[Case]:
    ledger = Ledger(torture.random)
    broker.start()
    with Wire(broker.bootstrap) as wire:
        assert wire.create_topic(TOPIC, partitions) == 0
        cases = [Case(number, broker.data_dir / TOPIC / str(number), []) for number in range(partitions)]
        for _ in range(BATCHES):
            for case in cases:
                assert ledger.produce(wire, TOPIC, case.partition, BATCH_BYTES_MAX, BATCH_BYTES_MIN) == 0
        for case in cases:
            _wait_for_recovery_point(wire, ledger, case)
        ends = {case.partition: wire.log_end(TOPIC, case.partition) for case in cases}
        assert wire.commit("readers", TOPIC, ends) == 0
    return cases


def _wait_for_recovery_point(wire: Wire, ledger: Ledger, case: Case) -> None:
    """Wait until complete segments are vouched for by an index; under flush=os it may take an append to get there."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not _is_sealed(case.folder):
        assert time.monotonic() < deadline, f"{case}: complete segments are not synced"
        assert ledger.produce(wire, TOPIC, case.partition, BATCH_BYTES_MAX, BATCH_BYTES_MIN) == 0
        time.sleep(0.02)  # a sync takes as long as the disk does


def _is_sealed(folder: Path) -> bool:
    segments = sorted(folder.glob("*.log"))
    return len(segments) > 2 and all(path.with_suffix(".index").exists() for path in segments[:-1])


def _go_on(torture: Torture, wire: Wire, cases: list[Case]) -> None:
    """Every partition takes writes and gives them back, from where its log ends."""
    ledger = Ledger(torture.random)
    for case in cases:
        end = wire.log_end(TOPIC, case.partition)
        assert ledger.produce(wire, TOPIC, case.partition) == 0, f"{case}: refuses writes"
        (batch,) = read_log(wire, TOPIC, case.partition, end)
        assert batch.content == ledger.acknowledged[TOPIC, case.partition][end]


def test_damaged_files_cost_what_was_damaged_and_nothing_else(torture: Torture, tmp_path: Path) -> None:
    """Segments, indexes and snapshots are flipped, overwritten, cut and extended, after kill -9 and a clean stop."""
    cut = 0
    for number in range(torture.pick(1, 8)):
        cut += strike_and_check(torture, tmp_path / f"killed-{number}", kill=True)
        cut += strike_and_check(torture, tmp_path / f"stopped-{number}", kill=False)
    assert cut, "no round cut anything: the damage is not where it should be"
