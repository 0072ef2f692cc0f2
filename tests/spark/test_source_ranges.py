"""A range of offsets is read exactly: each record once, in order, and never waited for what is not there."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest
from contract_world import eventually
from source_topics import add_marker, delete_records, delete_topic, fill, mark, new_topic

from anabranch import Broker
from anabranch.core.errors import Halted, PeerError, UsageError
from anabranch.kafka import ranges
from anabranch.kafka.client import Connection
from anabranch.kafka.extents import Range, Topics
from anabranch.kafka.lookout import Lookout
from anabranch.kafka.ranges import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def reader(anabranch_broker: Broker) -> Iterator[RangeReader]:
    made = RangeReader(Connection(anabranch_broker.bootstrap), patience_s=30)
    yield made
    made.close()


def offsets_of(reader: RangeReader, wanted: Range) -> list[int]:
    return [offset for rows in reader.read(wanted) for offset in rows.offsets]


def test_any_ranges_in_any_order_are_read_exactly(anabranch_broker: Broker, reader: RangeReader) -> None:
    """Workers are reused but not sticky: one consumer reads here, then there, with the prefetch of the last range
    behind it. Nothing of that may show.
    """
    topic = new_topic(anabranch_broker.bootstrap, 3)
    for partition in range(3):
        fill(anabranch_broker.bootstrap, topic, (b"%d" % number for number in range(3000)), partition)
    chance = random.Random(7)
    for _ in range(60):
        partition, start = chance.randrange(3), chance.randrange(2990)
        end = chance.choice([start + 1, chance.randrange(start + 1, 3001), 3000])
        found = list(reader.read(Range(topic, "", partition, start, end)))
        assert [offset for rows in found for offset in rows.offsets] == list(range(start, end))
        assert [value for rows in found for value in rows.values] == [b"%d" % number for number in range(start, end)]


def test_a_reader_without_a_range_fetches_nothing(anabranch_broker: Broker, reader: RangeReader) -> None:
    """An idle worker would keep prefetching: it has no partition after a range, also after one that was given up."""
    topic = new_topic(anabranch_broker.bootstrap)
    fill(anabranch_broker.bootstrap, topic, [b"x"] * 100)
    assert len(offsets_of(reader, Range(topic, "", 0, 0, 100))) == 100
    assert reader._consumer.assignment() == []
    given_up = reader.read(Range(topic, "", 0, 0, 100))
    next(given_up)
    given_up.close()  # type: ignore[attr-defined] # a generator has it
    assert reader._consumer.assignment() == []


def test_large_ranges_come_in_pieces(
    anabranch_broker: Broker, reader: RangeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by rows and by bytes, whatever the range is."""
    topic = new_topic(anabranch_broker.bootstrap)
    fill(anabranch_broker.bootstrap, topic, [b"x" * 1000] * 500)
    monkeypatch.setattr(ranges, "ROWS_MAX", 100)
    pieces = [len(rows.offsets) for rows in reader.read(Range(topic, "", 0, 0, 500))]
    assert sum(pieces) == 500
    assert max(pieces) <= 200
    monkeypatch.setattr(ranges, "BYTES_MAX", 10_000)
    assert len(list(reader.read(Range(topic, "", 0, 0, 500)))) >= 3


def test_no_more_is_asked_for_than_there_is(
    anabranch_broker: Broker, reader: RangeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`consume(n, t)` waits for n: with an hour to wait, the last records of a log come at once all the same."""
    topic = new_topic(anabranch_broker.bootstrap)
    fill(anabranch_broker.bootstrap, topic, [b"x"] * 10)
    monkeypatch.setattr(ranges, "POLL_S", 3600.0)
    monkeypatch.setattr(reader, "_patience_s", 3600.0)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(offsets_of(reader, Range(topic, "", 0, 3, 10))), daemon=True)
    thread.start()
    eventually(lambda: not thread.is_alive(), "the records that are there")
    assert found == list(range(3, 10))


def test_holes_are_no_records_and_no_reason_to_wait(tmp_path: Path) -> None:
    """Fault 1. Markers of transactions have offsets and are no records: in the middle of a range, at its end, at its
    beginning, as all of it, and at the end of the log.
    """
    broker = Broker(tmp_path)
    with broker:
        topic = new_topic(broker.bootstrap)
        for _ in range(3):  # 0-2 records, 3 marker, 4-6 records, 7 marker, 8-10 records, 11 marker
            fill(broker.bootstrap, topic, [b"x"] * 3)
            add_marker(broker.bootstrap, topic)
    assert mark(tmp_path, topic) == 3
    with broker:
        reader = RangeReader(Connection(broker.bootstrap), patience_s=30)
        seen = Lookout(Connection(broker.bootstrap), Topics((topic,))).look()[topic]
        assert seen.ends == {0: 12}
        records = [0, 1, 2, 4, 5, 6, 8, 9, 10]
        for start in range(12):
            for end in range(start + 1, 13):
                wanted = Range(topic, seen.id, 0, start, end)
                assert offsets_of(reader, wanted) == [offset for offset in records if start <= offset < end]
        reader.close()


def test_retention_that_passes_a_range_is_told(anabranch_broker: Broker, reader: RangeReader) -> None:
    """Between planning and reading the log moved on: it halts, or goes on and counts what is gone."""
    topic = new_topic(anabranch_broker.bootstrap)
    fill(anabranch_broker.bootstrap, topic, [b"x"] * 20)
    delete_records(anabranch_broker.bootstrap, topic, before=8)
    with pytest.raises(Halted, match=rf"{topic}/0: retention removed 5 offsets from 3 on .*failOnDataLoss"):
        offsets_of(reader, Range(topic, "", 0, 3, 20))
    patient = RangeReader(Connection(anabranch_broker.bootstrap), patience_s=30, go_on_after_loss=True)
    assert offsets_of(patient, Range(topic, "", 0, 3, 20)) == list(range(8, 20))
    assert patient.lost_to_retention == 5
    assert offsets_of(patient, Range(topic, "", 0, 0, 8)) == []
    assert patient.lost_to_retention == 13
    patient.close()


def test_a_topic_that_was_made_again_is_refused(anabranch_broker: Broker, reader: RangeReader) -> None:
    """The new topic has records at the same offsets: without its id nobody would notice."""
    topic = new_topic(anabranch_broker.bootstrap)
    topic_id = Lookout(Connection(anabranch_broker.bootstrap), Topics((topic,))).look()[topic].id
    delete_topic(anabranch_broker.bootstrap, topic)
    new_topic(anabranch_broker.bootstrap, name=topic)
    fill(anabranch_broker.bootstrap, topic, [b"other"] * 5)
    with pytest.raises(UsageError, match="deleted and made again"):
        offsets_of(reader, Range(topic, topic_id, 0, 0, 5))


def test_a_range_beyond_the_log_is_not_waited_for_ever(anabranch_broker: Broker) -> None:
    """A log that ends before the range is an error after the patience, with what was missing."""
    topic = new_topic(anabranch_broker.bootstrap)
    fill(anabranch_broker.bootstrap, topic, [b"x"] * 5)
    hasty = RangeReader(Connection(anabranch_broker.bootstrap), patience_s=0.3)
    with pytest.raises(PeerError, match=f"{topic}/0 from 0 to 9: nothing came after 5 for 0.3 s"):
        offsets_of(hasty, Range(topic, "", 0, 0, 9))
    hasty.close()


@pytest.mark.parametrize("name", ["auto.offset.reset", "enable.auto.commit"])
def test_settings_on_which_exactness_rests_are_refused(name: str) -> None:
    """They would let the library decide where to read."""
    with pytest.raises(UsageError, match=f"kafka.{name} cannot be set"):
        RangeReader(Connection("localhost:1", {name: "x"}), patience_s=1)
