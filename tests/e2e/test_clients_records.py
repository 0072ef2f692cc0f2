"""Records through unmodified clients: what one writes all of them read, byte for byte, however it was compressed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from foreign_clients import CLIENT_NAMES, CLIENTS, COMPRESSIONS, Client, Row, need_compression
from raw_client import RawClient, batches

from anabranch.broker.wire.batch import read_header

if TYPE_CHECKING:
    from anabranch import Broker

NOON_MS = 1_700_000_000_000

each_client = pytest.mark.parametrize("client", CLIENTS, ids=CLIENT_NAMES)


def _rows(client: Client) -> list[Row]:
    """Everything that a record can be: null and empty keys and values, binary, repeated, empty and null headers."""
    null = b"null" if client.name == "kafka-python" else None  # it refuses to send a header that is null, and reads it
    shapes: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (b"", b"", ()),
        (bytes(range(256)), b"\x00\xff" * 500, ()),
        (b"headers", b"v", (("one", b"1"), ("one", b"again"), ("empty", b""), ("null", null), ("näme", b"\xff"))),
        (b"long", b"x" * 20_000, ()),
    ]
    return [
        Row(partition, key, value, NOON_MS + 1000 * number + partition, headers)
        for partition in range(4)
        for number, (key, value, headers) in enumerate(shapes)
    ]


def _expected(rows: list[Row]) -> list[Row]:
    """The rows with the offsets that they must have got."""
    ends = dict.fromkeys(range(4), 0)
    placed = []
    for row in rows:
        placed.append(replace(row, offset=ends[row.partition]))
        ends[row.partition] += 1
    return sorted(placed, key=lambda row: (row.partition, row.offset))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@each_client
def test_what_a_client_writes_all_clients_read(
    anabranch_broker: Broker, anabranch_topic: str, client: Client, compression: str
) -> None:
    """Keys, values, headers, timestamps, partitions and offsets are the same to everybody, with every compression."""
    rows = _rows(client)
    client.write(anabranch_broker.bootstrap, anabranch_topic, rows, compression)
    with RawClient(anabranch_broker.bootstrap) as raw:
        stored = read_header(batches(raw.fetch(anabranch_topic, 0).records)[0])
    assert stored.compression == compression, "the batch lies in the log as the client compressed it"
    for reader in CLIENTS:
        if reader.name == "kafka-python" and compression in {"snappy", "lz4", "zstd"} and reader is not client:
            continue  # covered by the test below, which says what is missing
        assert reader.read(anabranch_broker.bootstrap, anabranch_topic, len(rows)) == _expected(rows), reader.name


@pytest.mark.parametrize("compression", ["snappy", "lz4", "zstd"])
def test_kafka_python_reads_what_others_compressed(
    anabranch_broker: Broker, anabranch_topic: str, compression: str
) -> None:
    """The third reader of the test above, apart because its compression comes from packages of its own."""
    writer, reader, _ = CLIENTS
    need_compression(reader, compression)
    rows = _rows(writer)
    writer.write(anabranch_broker.bootstrap, anabranch_topic, rows, compression)
    assert reader.read(anabranch_broker.bootstrap, anabranch_topic, len(rows)) == _expected(rows)


def test_all_clients_read_what_all_clients_wrote(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """Three producers on the same partitions, one after another: everybody sees the same sequence of records."""
    rows: list[Row] = []
    for number, client in enumerate(CLIENTS):
        written = [replace(row, timestamp=row.timestamp + number) for row in _rows(client)]
        client.write(anabranch_broker.bootstrap, anabranch_topic, written, "gzip")
        rows += written
    for reader in CLIENTS:
        assert reader.read(anabranch_broker.bootstrap, anabranch_topic, len(rows)) == _expected(rows), reader.name


@each_client
def test_the_order_of_a_key_is_kept_by_idempotent_producers(
    anabranch_broker: Broker, anabranch_topic: str, client: Client
) -> None:
    """2,000 records of 20 keys with several batches in flight: each key's records come in the order sent."""
    rows = [Row(number % 20 % 4, b"key-%d" % (number % 20), b"%d" % number, NOON_MS + number) for number in range(2000)]
    client.write(anabranch_broker.bootstrap, anabranch_topic, rows)
    read = client.read(anabranch_broker.bootstrap, anabranch_topic, len(rows))
    for key in {row.key for row in rows}:
        assert [row.value for row in read if row.key == key] == [row.value for row in rows if row.key == key]
    with RawClient(anabranch_broker.bootstrap) as raw:
        first = read_header(batches(raw.fetch(anabranch_topic, 0).records)[0])
    assert first.producer_id >= 0, "the producer was idempotent"


def test_a_record_near_the_limit_goes_through(anabranch_broker: Broker, anabranch_topic: str) -> None:
    """Just below a million bytes: about the largest record that the clients' defaults allow."""
    rows = [Row(0, b"large", bytes(999_000), NOON_MS)]
    for client in CLIENTS:
        client.write(anabranch_broker.bootstrap, anabranch_topic, rows)
    for client in CLIENTS:
        assert [row.value for row in client.read(anabranch_broker.bootstrap, anabranch_topic, 3)] == [
            bytes(999_000)
        ] * 3
