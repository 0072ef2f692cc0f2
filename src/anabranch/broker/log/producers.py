"""Idempotent producers (KIP-98): which sequence numbers of which producer id this partition has taken.

Per producer id: its epoch and its last five batches, five being the most that a client keeps in flight. The rules:

- An older epoch is refused; a newer one must start at sequence 0.
- A batch that is exactly one of the five is a repeat of something acknowledged: success, with the stored offsets.
- The next batch must start at the last sequence + 1; after 2³¹-1 comes 0.
- Below the five, nobody knows its offsets any more: DUPLICATE_SEQUENCE_NUMBER, which clients take as written. With
  fewer than five known there never were others: anything else is a gap or an overlap, OUT_OF_ORDER_SEQUENCE_NUMBER.
- An unknown id may start anywhere: its entry may have expired, or its records may have been removed. But if its first
  batch met a failing disk (`expect`), only that one may come next: 1. batch 0 is refused, 2. batch 1, sent right
  behind it, must not open the sequence, or 3. the repeat of batch 0 could only be refused for good or lied about.

Entries expire a day after their last batch, and beyond `entries_max` the longest unused tenth goes. Forgetting an entry
is safe for order within the log and costs only the recognition of repeats older than that.
"""

import heapq
from typing import NamedTuple

from anabranch.broker.log.errors import BatchRefused
from anabranch.broker.wire.batch import BatchHeader
from anabranch.broker.wire.error_codes import ErrorCode

SEQUENCE_MASK = 0x7FFFFFFF
BATCHES_KEPT = 5
EXPIRY_MS = 24 * 60 * 60 * 1000
ENTRIES_MAX = 100_000
EXPECTED_MAX = 10_000


class KnownBatch(NamedTuple):
    """What is kept of a batch, to answer its repetition."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Producer:
    """What is known of one producer id."""

    __slots__ = ("batches", "epoch", "last_ms", "transaction_offset")

    def __init__(
        self, epoch: int, last_ms: int, batches: list[KnownBatch] | None = None, transaction_offset: int = -1
    ) -> None:
        self.epoch = epoch
        self.last_ms = last_ms
        self.batches: list[KnownBatch] = [] if batches is None else batches
        self.transaction_offset = transaction_offset
        """First offset of its open transaction; -1 while transactions are not served."""


class Producers:
    """All producers of one partition. `check` decides, `record` remembers; a failed write lies between them."""

    __slots__ = ("by_id", "entries_max", "expected")

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self.by_id: dict[int, Producer] = {}
        self.entries_max = entries_max
        self.expected: dict[int, tuple[int, int]] = {}
        """Of unknown producers whose first batch could not be written: epoch and sequence of that batch."""

    def __len__(self) -> int:
        return len(self.by_id)

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """Give the stored batch if this one repeats it, None if it is the next one; raise BatchRefused otherwise."""
        producer = self.by_id.get(header.producer_id)
        first = header.base_sequence
        if producer is None or not producer.batches:
            epoch, expected = self.expected.get(header.producer_id, (header.producer_epoch, first))
            if epoch == header.producer_epoch and expected != first:
                raise _out_of_order(header, expected)
            return None
        if header.producer_epoch != producer.epoch:
            _check_epoch(header, producer)
            return None
        batches = producer.batches
        if first == (batches[-1].last_sequence + 1) & SEQUENCE_MASK:
            return None
        last = (first + header.last_offset_delta) & SEQUENCE_MASK
        for known in batches:
            if known.first_sequence == first and known.last_sequence == last:
                return known
        expected = (batches[-1].last_sequence + 1) & SEQUENCE_MASK
        if len(batches) == BATCHES_KEPT and _distance(batches[0].first_sequence, last) < 0:
            raise BatchRefused(
                f"producer {header.producer_id} repeats sequence {first}, of which the offset is no longer known",
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            )
        raise _out_of_order(header, expected)

    def expect(self, header: BatchHeader) -> None:
        """Take note that this batch could not be written: if its producer is unknown, nothing else may come first."""
        if header.producer_id >= 0 and header.producer_id not in self.by_id:
            if len(self.expected) >= EXPECTED_MAX:
                del self.expected[next(iter(self.expected))]
            self.expected.setdefault(header.producer_id, (header.producer_epoch, header.base_sequence))

    def record(self, header: BatchHeader, base_offset: int, timestamp: int, now_ms: int) -> None:
        """Remember a batch that is now in the log at `base_offset`."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            if len(self.by_id) >= self.entries_max:
                self._forget_longest_unused()
            producer = self.by_id[header.producer_id] = Producer(header.producer_epoch, now_ms)
            self.expected.pop(header.producer_id, None)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        first = header.base_sequence
        delta = header.last_offset_delta
        producer.batches.append(
            KnownBatch(first, (first + delta) & SEQUENCE_MASK, base_offset, base_offset + delta, timestamp)
        )
        if len(producer.batches) > BATCHES_KEPT:
            del producer.batches[0]
        producer.last_ms = now_ms

    def expire(self, now_ms: int, expiry_ms: int = EXPIRY_MS) -> int:
        """Forget producers that wrote nothing for so long; give how many."""
        old = [number for number, producer in self.by_id.items() if now_ms - producer.last_ms > expiry_ms]
        for number in old:
            del self.by_id[number]
        return len(old)

    def _forget_longest_unused(self) -> None:
        count = self.entries_max // 10 + 1
        for number in heapq.nsmallest(count, self.by_id, key=lambda number: self.by_id[number].last_ms):
            del self.by_id[number]


def _out_of_order(header: BatchHeader, expected: int) -> BatchRefused:
    return BatchRefused(
        f"producer {header.producer_id} sent sequence {header.base_sequence} where {expected} comes next",
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )


def _check_epoch(header: BatchHeader, producer: Producer) -> None:
    if header.producer_epoch < producer.epoch:
        raise BatchRefused(
            f"producer {header.producer_id} has epoch {producer.epoch}; {header.producer_epoch} is fenced",
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )
    if header.base_sequence != 0:
        raise BatchRefused(
            f"epoch {header.producer_epoch} of producer {header.producer_id} must start at sequence 0",
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        )


def _distance(origin: int, sequence: int) -> int:
    """How far `sequence` is ahead of `origin` on the circle of 2³¹ numbers; negative when it is behind."""
    ahead = (sequence - origin) & SEQUENCE_MASK
    return ahead if ahead <= SEQUENCE_MASK // 2 else ahead - SEQUENCE_MASK - 1
