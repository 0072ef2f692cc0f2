"""kill -9, again and again, under load (fault 18): nothing that was acknowledged is lost, repeated or out of order."""

from contextlib import suppress
from pathlib import Path

from torture_broker import BrokerProcess
from torture_clients import SteadyMember, SteadyProducer, check_producer, read_back, wait_until
from torture_form import Torture
from torture_group import GROUP, GroupByHand
from torture_wire import Wire

from anabranch.testing.history import HistoryWriter, read_history
from anabranch.testing.oracle import judge

TOPIC = "orders"
PARTITIONS = 4
SEGMENT_BYTES = 1024 * 1024
LISTENS_AGAIN_S_MAX = 1.0


class Run:
    """Two producers, two group members and a group by hand, on one broker that dies often."""

    def __init__(self, torture: Torture, broker: BrokerProcess, history: Path) -> None:
        self.torture = torture
        self.broker = broker
        self.starts_s = [broker.start()]
        self.producer_ids: list[int] = []
        self.committed_by_hand = 0
        with Wire(broker.bootstrap) as wire:
            assert wire.create_topic(TOPIC, PARTITIONS) == 0
        self.recorders = [HistoryWriter(history, name) for name in ("first", "second", "static", "dynamic")]
        place = (broker.bootstrap, TOPIC)
        first, second, static, dynamic = self.recorders
        self.members = [
            SteadyMember(*place, "readers", "static", static, "reader-1"),
            SteadyMember(*place, "readers", "dynamic", dynamic, None),
        ]
        self.producers = [
            SteadyProducer(*place, PARTITIONS, "first", first),
            SteadyProducer(*place, PARTITIONS, "second", second),
        ]
        self.group = GroupByHand(broker.bootstrap)
        for thread in (*self.members, *self.producers):
            thread.start()
        wait_until(self._shared_out, "both members have partitions")
        self.assignments = [member.assignments for member in self.members]

    @property
    def acknowledged(self) -> int:
        return sum(len(producer.acknowledged) for producer in self.producers)

    def _shared_out(self) -> bool:
        return (
            all(member.assigned for member in self.members) and sum(len(m.assigned) for m in self.members) == PARTITIONS
        )

    def round(self, number: int) -> None:
        """Let it run for a while, kill it, start it again, and look at what must be there at once."""
        chance = self.torture.random
        target = self.acknowledged + chance.randrange(1, self.torture.pick(1500, 3000))
        wait_until(lambda: self.acknowledged >= target, "records are acknowledged")
        self._commit_by_hand()
        committed = [dict(member.committed) for member in self.members]
        self.broker.kill()
        self.broker.options["flush"] = chance.choice(("always", "always", "os"))
        if self.torture.full and chance.random() < 0.25:
            self._kill_while_starting()
        self.starts_s.append(self.broker.start())
        self.group.check(self.broker.bootstrap)
        if chance.random() < 0.5:
            self.group.restart_static(self.broker.bootstrap)
            self.group.check(self.broker.bootstrap)
        self._check_committed(committed)
        self.torture.say(
            f"round {number}: killed after {self.acknowledged} acknowledged records, "
            f"answered again in {self.starts_s[-1]:.2f} s (flush {self.broker.options['flush']})"
        )

    def _kill_while_starting(self) -> None:
        """Also a broker that recovers may die: the next one starts from what it left."""
        self.broker.begin()
        log, deaf = self.broker.logs.stat().st_size, self.torture.random.random() * 0.5
        with suppress(AssertionError):  # it has not said anything yet: just as good a moment
            wait_until(lambda: self.broker.logs.stat().st_size > log, "log lines", deaf)
        self.broker.kill()

    def _commit_by_hand(self) -> None:
        with Wire(self.broker.bootstrap) as wire:
            self.producer_ids += [wire.producer_id() for _ in range(3)]
            position = min(wire.log_end(TOPIC, partition) for partition in range(PARTITIONS))
            assert self.group.commit(wire, TOPIC, dict.fromkeys(range(PARTITIONS), position)) == 0
            self.committed_by_hand = position

    def _check_committed(self, before: list[dict[int, int]]) -> None:
        partitions = list(range(PARTITIONS))
        with Wire(self.broker.bootstrap) as wire:
            by_hand = wire.committed(GROUP, TOPIC, partitions)
            readers = wire.committed("readers", TOPIC, partitions)
        assert by_hand == dict.fromkeys(partitions, self.committed_by_hand)
        for positions in before:
            for partition, position in positions.items():
                assert readers[partition] >= position, (
                    f"partition {partition}: {position} was committed, {readers[partition]} is there"
                )

    def abandon(self) -> None:
        """Let the threads end, also when a check has failed."""
        for producer in self.producers:
            producer.abandon()
        for member in self.members:
            member.abandon()

    def finish(self) -> None:
        """Let everything arrive, read it back and judge."""
        for producer in self.producers:
            producer.finish()
        total = self.acknowledged
        wait_until(lambda: sum(member.records for member in self.members) >= total, "the group has read everything")
        for member in self.members:
            member.finish()
        for recorder in self.recorders:
            recorder.close()
        assert [member.assignments for member in self.members] == self.assignments, "a restart made a rebalance"
        assert len(set(self.producer_ids)) == len(self.producer_ids), "a producer id was handed out twice"
        with Wire(self.broker.bootstrap) as wire:
            ends = {partition: wire.log_end(TOPIC, partition) for partition in range(PARTITIONS)}
        found = read_back(self.broker.bootstrap, TOPIC, ends)
        checked = sum(check_producer(producer, found) for producer in self.producers)
        assert checked == total == sum(ends.values()), "there is more in the log than was sent"


def test_kill_9_loses_nothing_that_was_acknowledged(torture: Torture, tmp_path: Path) -> None:
    """Two idempotent producers and a group go on through kill -9 of the broker at random moments.

    Every acknowledged record is there once and in order, at the offset that the acknowledgement named; acknowledged
    commits are there; group members stay members of the same generation; no producer id is given twice.
    """
    logs = tmp_path / "broker.log"
    with BrokerProcess(tmp_path / "data", logs, segment_bytes=SEGMENT_BYTES, flush="always") as broker:
        run = Run(torture, broker, tmp_path / "history")
        try:
            for number in range(1, torture.pick(3, 20) + 1):
                run.round(number)
            run.finish()
        finally:
            run.abandon()
    segments = len(list((tmp_path / "data" / TOPIC).glob("*/*.log")))
    verdict = judge(read_history(tmp_path / "history"), records=run.acknowledged)
    restarts = run.starts_s[1:]
    torture.say(
        f"{run.acknowledged} records in {segments} segments read back: all there, once, in order; "
        f"slowest start {max(restarts):.2f} s"
    )
    torture.say(verdict.line())
    assert verdict.ok, verdict.report()
    assert not torture.full or max(restarts) < LISTENS_AGAIN_S_MAX, f"answered again only after {restarts}"
