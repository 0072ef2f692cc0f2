"""The scripted log: records with holes between them, written before and during the run."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING
from zlib import crc32

from anabranch.core.policies import Ordering
from anabranch.core.records import Record

if TYPE_CHECKING:
    from random import Random

    from anabranch.core.work import TopicPartition
    from anabranch.testing.simulation.scenario import Scenario

WHOLE_PARTITION = b"all of it"
WITHOUT_KEY = b"those without a key"


class PartitionLog:
    """One partition; the first `visible` of its records have been written."""

    def __init__(self, partition: TopicPartition, scenario: Scenario, random: Random) -> None:
        self.partition = partition
        self.start = random.choice([0, 1000])
        self.visible = 0
        self.records: list[Record] = []
        offset, epoch = self.start, random.choice([-1, 0, 5])
        for number in range(scenario.records):
            while random.random() < scenario.holes:
                offset += random.choice([1, 1, 2, 40])
            if epoch >= 0 and random.random() < 0.03:
                epoch += 1
            key = _draw_key(scenario, partition.partition, number, random)
            self.records.append(Record(*partition, offset, key, b"value", leader_epoch=epoch))
            offset += 1
        self.end = offset + (random.randrange(3) if scenario.holes else 0)
        self.offsets = [record.offset for record in self.records]

    @property
    def end_now(self) -> int:
        """Where the log ends as far as it is written."""
        return self.end if self.visible == len(self.records) else self.offsets[self.visible]

    def fetch(self, position: int, count: int, random: Random) -> tuple[list[Record], int]:
        """Answer records from a position on, and the position after them, which may pass holes."""
        begin = bisect_left(self.offsets, position, 0, self.visible)
        records = self.records[begin : min(begin + count, self.visible)]
        after = begin + len(records)
        beyond = self.offsets[after] if after < self.visible else self.end_now
        return records, beyond if random.random() < 0.7 or not records else records[-1].offset + 1


def _draw_key(scenario: Scenario, partition: int, number: int, random: Random) -> bytes | None:
    if scenario.keys_in_turn:
        in_partition = scenario.keys // scenario.partitions
        return b"key %d" % (partition + scenario.partitions * (number % in_partition))
    return None if random.random() < scenario.null_keys else b"key %d" % random.randrange(scenario.keys)


def ordering_key(scenario: Scenario, record: Record) -> bytes | None:
    """Say which records keep their order with this one; None for none."""
    policy = scenario.policy
    if policy.ordering is Ordering.PARTITION:
        return WHOLE_PARTITION
    if policy.ordering is Ordering.NONE:
        return None
    key = record.key
    if scenario.rekeyed and key is not None:
        key = b"group %d" % (crc32(b"%d" % record.offset) % scenario.keys)
    return WITHOUT_KEY if key is None and policy.null_key_ordered else key
