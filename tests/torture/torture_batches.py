"""A ledger of raw batches: what was acknowledged, byte for byte, and whether it is still there."""

import random
import time
from collections import defaultdict

from torture_wire import Batch, Wire, batches_of

from anabranch.broker.wire.records import Record, build_batch

CONTENT_START = 17
"""Where the CRC stands: the broker may change what is before it (offset, leader epoch), nothing after."""

Place = tuple[str, int]


class Ledger:
    """By topic and partition: the batches that the broker acknowledged with acks=all."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self.acknowledged: dict[Place, dict[int, bytes]] = defaultdict(dict)
        self.ends: dict[Place, int] = defaultdict(int)
        """Where the next acknowledged batch cannot start below."""

    @property
    def batches(self) -> int:
        return sum(len(batches) for batches in self.acknowledged.values())

    def produce(self, wire: Wire, topic: str, partition: int, bytes_max: int = 20_000, bytes_min: int = 1) -> int:
        """Append one random batch; answer the error code, 0 when it was acknowledged and noted."""
        sizes = [self._random.randrange(bytes_min, bytes_max // 3) for _ in range(self._random.randrange(1, 4))]
        now_ms = time.time_ns() // 1_000_000  # older ones would fall to retention
        records = [
            Record(timestamp=now_ms + index, value=self._random.randbytes(size)) for index, size in enumerate(sizes)
        ]
        batch = bytes(build_batch(records))
        answer = wire.produce(topic, partition, batch)
        if answer.error_code == 0:
            place = (topic, partition)
            assert answer.base_offset >= self.ends[place], "an offset was given twice"
            self.acknowledged[place][answer.base_offset] = batch[CONTENT_START:]
            self.ends[place] = answer.base_offset + len(sizes)
        return answer.error_code

    def check(self, wire: Wire) -> int:
        """Check that all of it is there, byte for byte; answer how many batches are there besides."""
        besides = 0
        for place, batches in self.acknowledged.items():
            found = {batch.base_offset: batch.content for batch in read_log(wire, *place)}
            lost = [offset for offset in batches if offset not in found]
            assert not lost, f"LOST: {len(lost)} acknowledged batches of {place}, first at {lost[0]}"
            changed = [offset for offset, content in batches.items() if found[offset] != content]
            assert not changed, f"CHANGED: {len(changed)} acknowledged batches of {place}, first at {changed[0]}"
            besides += len(found) - len(batches)
        return besides

    def lost(self, wire: Wire) -> int:
        """Count acknowledged batches that are gone."""
        return sum(
            len(batches.keys() - {batch.base_offset for batch in read_log(wire, *place)})
            for place, batches in self.acknowledged.items()
        )


def read_log(wire: Wire, topic: str, partition: int, offset: int = 0) -> list[Batch]:
    """Read a partition to its end: every batch whole, every CRC right, every offset the next one."""
    found: list[Batch] = []
    end = wire.log_end(topic, partition)
    while offset < end:
        answer = wire.fetch(topic, partition, offset)
        assert answer.error_code == 0, f"{topic}/{partition} at {offset}: error {answer.error_code}"
        batches = batches_of(answer.records)
        assert batches, f"{topic}/{partition} at {offset}: nothing, although the log ends at {end}"
        for batch in batches:
            assert batch.base_offset <= offset < batch.next_offset, (
                f"{batch.base_offset} came where {offset} comes next"
            )
            offset = batch.next_offset
        found += batches
    return found
