"""How far a Spark query reads next: entered first, read from the next batch on, every offset once."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.errors import Halted, UsageError
from anabranch.core.work import TopicPartition
from anabranch.kafka.extents import Range, Topics, TopicSeen
from anabranch.spark.positions import (
    EARLIEST,
    LATEST,
    NOTHING_YET,
    Positions,
    Start,
    TopicPositions,
    advance,
    beyond,
    check_ids,
    check_topics,
    ends_of,
    enter,
    lag,
    ranges,
    restored,
    share,
)


def orders(*bounds: tuple[int, int], topic_id: str = "id-1") -> dict[str, TopicSeen]:
    """A topic with partitions from log_start to end."""
    return {
        "orders": TopicSeen(
            topic_id,
            {number: low for number, (low, _) in enumerate(bounds)},
            {number: high for number, (_, high) in enumerate(bounds)},
        )
    }


def at(*positions: int, topic_id: str = "id-1") -> Positions:
    return Positions({"orders": TopicPositions(topic_id, dict(enumerate(positions)))})


def test_equal_positions_have_equal_texts() -> None:
    """Spark compares texts to see whether anything is new: the order in which partitions were found must not show."""
    one = Positions({"b": TopicPositions("", {10: 1, 9: 2}), "a": TopicPositions("x", {0: 3})})
    other = Positions({"a": TopicPositions("x", {0: 3}), "b": TopicPositions("", {9: 2, 10: 1})})
    assert json.dumps(one.stored()) == json.dumps(other.stored())
    assert restored(json.dumps(one.stored())) == one


def test_the_initial_offset_is_a_constant_and_comes_back_as_not_started() -> None:
    """It is asked for twice, and once more after a crash in the first batch."""
    assert NOTHING_YET.stored() == {"version": 1}
    assert not restored(NOTHING_YET.stored()).started
    assert restored(Positions().stored()).started


@pytest.mark.parametrize("stored", ["", "7", "[]", '{"offset": 3}', {"orders": {"0": 1}}, {"version": 1, "topics": 3}])
def test_what_another_source_wrote_is_refused(stored: Any) -> None:
    """A sentence instead of a KeyError."""
    with pytest.raises(UsageError, match="was not written by this source"):
        restored(stored)


def test_another_version_is_refused() -> None:
    """A newer format is not guessed at."""
    with pytest.raises(UsageError, match="version 2 of this source, and version 1 is read here"):
        restored({"version": 2, "topics": {}})


def test_a_checkpoint_of_another_topic_is_refused() -> None:
    """The sentence names both topics and what to do."""
    with pytest.raises(UsageError, match=r"has positions of orders, and returns is to be read.*checkpointLocation"):
        check_topics(at(1), Topics(("returns",)))
    with pytest.raises(UsageError, match=r"pattern 'ret\.\*'"):
        check_topics(at(1), Topics(pattern="ret.*"))
    check_topics(at(1), Topics(("returns", "orders")))
    check_topics(at(1), Topics(pattern="o.*"))


def test_a_topic_that_was_made_again_is_refused() -> None:
    """The same name with another id has other records at the same offsets. Without ids nobody can tell."""
    with pytest.raises(UsageError, match="deleted and made again"):
        check_ids(at(5), orders((0, 9), topic_id="id-2"))
    check_ids(at(5), orders((0, 9), topic_id=""))
    check_ids(at(5, topic_id=""), orders((0, 9)))
    with pytest.raises(UsageError, match="does not exist"):
        check_ids(at(5), {})


def test_the_start_is_stored_before_anything_is_read() -> None:
    """The first batch only enters: what a crash after it repeats is nothing, wherever `latest` is by then."""
    first = enter(NOTHING_YET, orders((3, 10), (0, 7)), Start(LATEST))
    assert first == at(10, 7)
    assert ranges(NOTHING_YET, first) == []
    assert enter(NOTHING_YET, orders((3, 10), (0, 7)), Start(EARLIEST)) == at(3, 0)
    wanted = Start(LATEST, {TopicPartition("orders", 0): 5})
    assert enter(NOTHING_YET, orders((3, 10), (0, 7)), wanted) == at(5, 7)


def test_a_start_outside_of_the_log_is_refused() -> None:
    """Moving it silently would read something else than what was asked for."""
    with pytest.raises(UsageError, match="orders/0 has offsets from 3 to 10, and 11 is given"):
        enter(NOTHING_YET, orders((3, 10)), Start(LATEST, {TopicPartition("orders", 0): 11}))


def test_what_is_added_later_begins_at_its_log_start_under_latest_too() -> None:
    """KIP-842: what was written to it before anyone noticed is not skipped; nor in a topic that is found late."""
    assert enter(at(10), orders((0, 12), (4, 9)), Start(LATEST)) == at(10, 4)
    assert enter(Positions(), orders((4, 9)), Start(LATEST)) == at(4)


def test_a_batch_reads_what_lies_between_two_offsets_of_what_both_have() -> None:
    """Partition 2 is entered by this batch, partition 1 has nothing new."""
    assert ranges(at(3, 5), at(7, 5, 100)) == [Range("orders", "id-1", 0, 3, 7)]


def test_retention_that_passed_the_reader_halts_or_is_reported() -> None:
    """What is gone does not count against the limit: else a thousand empty batches would walk over it."""
    seen = orders((100, 120))
    with pytest.raises(Halted, match=r"removed 95 offsets from 5 on.*failOnDataLoss"):
        advance(at(5), seen, None, fail_on_data_loss=True)
    going = advance(at(5), seen, 10, fail_on_data_loss=False)
    assert going.positions == at(110)
    assert going.notices == ("orders/0: retention removed 95 offsets from 5 on before they were read; going on at 100",)


def test_a_log_that_was_cut_back_halts_or_is_reported() -> None:
    """Waiting until it has grown beyond the old position would skip what is written there meanwhile."""
    assert beyond(at(9), orders((0, 4)))
    assert not beyond(at(4), orders((0, 4)))
    with pytest.raises(Halted, match="position 9 lies beyond the end of the log, 4"):
        advance(at(9), orders((0, 4)), None, fail_on_data_loss=True)
    going = advance(at(9), orders((0, 4)), None, fail_on_data_loss=False)
    assert going.positions == at(4)
    assert ranges(at(9), going.positions) == []


def test_lag_counts_offsets_up_to_the_ends() -> None:
    """Partition 1 is not entered yet: how far it is behind is known with the next batch."""
    assert lag(at(3), ends_of(orders((0, 10), (0, 4)))) == 7
    assert lag(at(12), ends_of(orders((0, 10)))) == 0


@given(
    waiting=st.lists(st.integers(0, 2000), min_size=1, max_size=8),
    rows_max=st.integers(1, 3000),
    turn=st.integers(0, 10**6),
)
def test_a_share_is_all_that_is_allowed_and_nobody_gets_more_than_he_has(
    waiting: list[int], rows_max: int, turn: int
) -> None:
    """And with enough rows, who has less than an even part gets all of it."""
    asked = {TopicPartition("orders", number): count for number, count in enumerate(waiting)}
    shares = share(asked, rows_max, turn=turn)
    assert sum(shares.values()) == min(rows_max, sum(waiting))
    for partition, got in shares.items():
        assert 0 <= got <= asked[partition]
        if rows_max >= len(waiting):
            assert got >= min(asked[partition], rows_max // len(waiting))


@given(
    growth=st.lists(st.lists(st.integers(0, 20), min_size=4, max_size=4), min_size=1, max_size=6),
    rows_max=st.none() | st.integers(3, 30),
    begin=st.sampled_from([EARLIEST, LATEST]),
    added=st.integers(1, 4),
)
def test_every_offset_is_read_once_and_in_order(
    growth: list[list[int]], rows_max: int | None, begin: int, added: int
) -> None:
    """Logs grow, a partition is added, batches are limited: the ranges of the batches follow each other without a gap,
    and in the end everything was read from where its partition was entered.
    """
    ends = [7, 0, 3]
    positions, read = NOTHING_YET, {number: [] for number in range(4)}  # type: dict[int, list[Range]]
    for turn in range(300):
        if turn < len(growth):
            ends = [end + more for end, more in zip(ends, growth[turn], strict=False)]
        if turn == added:
            ends.append(5)
        seen = orders(*((0, end) for end in ends))
        going = advance(positions, seen, rows_max, fail_on_data_loss=True)
        after = enter(going.positions, seen, Start(begin))
        for each in ranges(positions, after):
            read[each.partition].append(each)
        if after == positions and turn > max(len(growth), added):
            break
        positions = restored(json.loads(json.dumps(after.stored())))
    for number, end in enumerate(ends):
        followed = read[number]
        assert all(one.end == other.start for one, other in pairwise(followed))
        assert positions.at("orders", number) == end
        if followed:
            assert followed[-1].end == end
        if begin == EARLIEST or number == 3:
            assert not end or followed[0].start == 0
