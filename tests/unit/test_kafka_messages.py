"""From the library's messages to records."""

from __future__ import annotations

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, Message

from anabranch.core.records import Record
from anabranch.core.work import TopicPartition
from anabranch.kafka.messages import sort_messages


def message(partition: int, offset: int, epoch: int = 3, **more: object) -> Message:
    given: dict[str, object] = {"key": b"k", "value": b"v", "timestamp": (TIMESTAMP_CREATE_TIME, 99), **more}
    return Message(topic="t", partition=partition, offset=offset, leader_epoch=epoch, **given)  # type: ignore[arg-type] # by name


def test_every_field_is_carried_over() -> None:
    """Null and empty stay apart; headers keep order, doubles and nulls; what is unknown is -1."""
    found, problems = sort_messages(
        [
            message(0, 5, headers=[("a", b"1"), ("a", None)]),
            message(0, 7, -1, key=None, value=None),
            message(0, 9, 4, key=b"", value=b""),
        ]
    )
    assert problems == []
    assert len(found) == 1
    assert found[0].partition == TopicPartition("t", 0)
    assert found[0].records == [
        Record("t", 0, 5, b"k", b"v", (("a", b"1"), ("a", None)), 99, 3),
        Record("t", 0, 7, None, None, (), 99, -1),
        Record("t", 0, 9, b"", b"", (), 99, 4),
    ]
    assert all(type(record) is Record for record in found[0].records)
    assert (found[0].position, found[0].bytes) == (10, 1)


def test_partitions_that_take_turns_are_sorted_and_keep_their_order() -> None:
    """One batch for each partition."""
    found, _ = sort_messages([message(number % 3, number) for number in range(30)])
    assert {each.partition.partition: [record.offset for record in each.records] for each in found} == {
        number: list(range(number, 30, 3)) for number in range(3)
    }


def test_errors_are_taken_out() -> None:
    """They are no records, and what stands around them is."""
    error = KafkaError(KafkaError._PARTITION_EOF)
    found, problems = sort_messages([message(0, 1), message(0, 2, error=error), message(0, 2)])
    assert [record.offset for record in found[0].records] == [1, 2]
    assert [each.error() for each in problems] == [error]
    assert sort_messages(problems) == ([], problems)
