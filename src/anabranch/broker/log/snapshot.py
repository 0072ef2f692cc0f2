"""The file `<offset>.snapshot`: producers and leader epochs as they were when the log ended at that offset.

Written at roll and at a clean stop, the newest two kept. It only shortens the start: whatever it does not know is
replayed from batch headers, from its offset on; without any, from log_start. One above log_end speaks of records that
are gone and must be removed before the log grows past it again.
"""

import msgspec

from anabranch.broker.log.envelope import seal, unseal
from anabranch.broker.log.epochs import EpochStart, LeaderEpochs
from anabranch.broker.log.producers import KnownBatch, Producer, Producers

MAGIC = b"ABSN"
VERSION = 1
SUFFIX = ".snapshot"
KEPT = 2


class _ProducerRow(msgspec.Struct, array_like=True):
    producer_id: int
    epoch: int
    last_ms: int
    transaction_offset: int
    batches: list[KnownBatch]


class _Snapshot(msgspec.Struct, array_like=True):
    next_offset: int
    epochs: list[EpochStart]
    producers: list[_ProducerRow]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Snapshot)


def encode_snapshot(next_offset: int, producers: Producers, epochs: LeaderEpochs) -> bytes:
    """Encode the state as a file."""
    rows = [
        _ProducerRow(number, producer.epoch, producer.last_ms, producer.transaction_offset, producer.batches)
        for number, producer in producers.by_id.items()
    ]
    return seal(MAGIC, VERSION, _encoder.encode(_Snapshot(next_offset, epochs.snapshot(), rows)))


def decode_snapshot(data: bytes | None, path: str) -> tuple[int, Producers, LeaderEpochs] | None:
    """Decode a file into (next offset, producers, epochs); None when it is absent or damaged."""
    body = unseal(MAGIC, VERSION, data, path)
    if body is None:
        return None
    try:
        stored = _decoder.decode(body)
    except msgspec.MsgspecError:
        return None
    producers = Producers()
    for row in stored.producers:
        producers.by_id[row.producer_id] = Producer(row.epoch, row.last_ms, row.batches, row.transaction_offset)
    return stored.next_offset, producers, LeaderEpochs(stored.epochs)


def snapshot_name(next_offset: int) -> str:
    """Give the file's name."""
    return f"{next_offset:020d}{SUFFIX}"
