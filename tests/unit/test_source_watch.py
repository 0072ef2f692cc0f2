"""A watch knows how far topics may be read without asking anybody while it is asked."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from contract_world import eventually

from anabranch.core.errors import InternalError, PeerError
from anabranch.kafka.extents import TopicSeen
from anabranch.spark.watch import INTERVAL_S, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch.kafka.extents import Seen


class Cluster:
    """A cluster in memory with one topic; it can grow, fall silent and break."""

    def __init__(self) -> None:
        self.end = 0
        self.partitions = 1
        self.error: Exception | None = None

    def look(self) -> Seen:
        if self.error is not None:
            raise self.error
        numbers = range(self.partitions)
        return {"orders": TopicSeen("id-1", dict.fromkeys(numbers, 0), dict.fromkeys(numbers, self.end))}

    def look_at_ends(self, seen: Seen) -> Seen:
        if self.error is not None:
            raise self.error
        return {
            name: TopicSeen(each.id, each.log_starts, dict.fromkeys(each.ends, self.end)) for name, each in seen.items()
        }


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def watch(cluster: Cluster) -> Iterator[Watch]:
    made = Watch(cluster)
    yield made
    made.stop()


def end_of(watch: Watch) -> int:
    seen = watch.sight().seen
    assert seen is not None
    return seen["orders"].ends[0]


def test_idle_answers_come_from_memory(cluster: Cluster, watch: Watch) -> None:
    """Spark asks 90 times a second when there is nothing to do: the cluster hears of a tenth of that at most."""
    begun = time.monotonic()
    for _ in range(2000):
        assert end_of(watch) == 0
    elapsed_s = time.monotonic() - begun
    assert watch.looks <= 2 + elapsed_s / INTERVAL_S


def test_growth_is_seen_while_someone_asks(cluster: Cluster, watch: Watch) -> None:
    """In the background, without a call that asks the cluster."""
    assert end_of(watch) == 0
    cluster.end = 5
    eventually(lambda: end_of(watch) == 5, "the new end")


def test_who_comes_back_after_a_long_batch_sees_what_came_meanwhile(cluster: Cluster) -> None:
    """Nobody looks while a batch runs for long; the first answer after it is fresh all the same."""
    now = [1000.0]
    watch = Watch(cluster, clock=lambda: now[0])
    assert end_of(watch) == 0
    cluster.end = 7
    now[0] += 60.0
    assert end_of(watch) == 7
    watch.stop()


def test_a_problem_keeps_what_was_seen_and_has_an_age(
    cluster: Cluster, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka errors are an answer here, reported once, not an exception; when they end that is said too."""
    cluster.end = 3
    assert end_of(watch) == 3
    cluster.error = PeerError("no broker answers")
    sight = eventually(lambda: (found := watch.sight()).problem and found, "a problem")
    assert str(sight.problem) == "no broker answers"
    assert sight.seen is not None
    assert sight.seen["orders"].ends == {0: 3}
    eventually(lambda: watch.sight().problem_s > 2 * INTERVAL_S, "it grows old")
    cluster.error = None
    eventually(lambda: watch.sight().problem is None, "the end of the problem")
    said = [record.getMessage() for record in caplog.records]
    assert len([text for text in said if "going on with what is known" in text]) == 1
    assert "that is over" in said[-1]


def test_after_a_problem_everything_is_seen_anew(cluster: Cluster, watch: Watch) -> None:
    """The topic may be another one by now: ends alone would not show it."""
    assert end_of(watch) == 0
    cluster.error = PeerError("no broker answers")
    eventually(lambda: watch.sight().problem, "a problem")
    cluster.partitions, cluster.error = 2, None

    def two() -> bool:
        seen = watch.sight().seen
        return seen is not None and len(seen["orders"].ends) == 2

    eventually(two, "the second partition")


def test_look_now_waits_for_everything_or_for_its_time(cluster: Cluster, watch: Watch) -> None:
    """What a query ends with under availableNow must be as it is now."""
    assert end_of(watch) == 0
    cluster.end, cluster.partitions = 9, 3
    sight = watch.look_now(10)
    assert sight.whole
    assert sight.seen is not None
    assert sight.seen["orders"].ends == {0: 9, 1: 9, 2: 9}
    cluster.error = PeerError("no broker answers")
    assert watch.look_now(0.05).problem is cluster.error


def test_an_error_that_is_not_expected_is_raised_where_it_is_asked(cluster: Cluster, watch: Watch) -> None:
    """A thread that died would answer the same for ever."""
    cluster.error = ZeroDivisionError()
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        watch.sight()


def test_a_watch_that_is_stopped_leaves_no_thread(cluster: Cluster) -> None:
    """Nor does one that was never asked."""
    Watch(cluster).stop()
    watch = Watch(cluster)
    watch.sight()
    watch.stop()
    eventually(
        lambda: all(each.name != "anabranch-watch" or each is not watch._thread for each in threading.enumerate()),
        "its end",
    )
