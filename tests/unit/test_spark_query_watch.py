"""A query watched without a Spark: what is told when the JVM is gone, and what retention took."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from anabranch import Halted, Pipeline
from anabranch.kafka.extents import TopicSeen
from anabranch.spark import queries as queries_module
from anabranch.spark.positions import Positions, TopicPositions, removed
from anabranch.spark.queries import Queries
from anabranch.spark.query import Query, State
from anabranch.spark.schema import shape_of
from anabranch.spark.stream import Outputs

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch.pipeline.plan import Plan


class Gone:
    """Answers as Spark's query does when the JVM was killed."""

    @property
    def isActive(self) -> bool:  # noqa: N802 # Spark's name
        raise ConnectionRefusedError(111, "Connection refused")


async def charge(value: bytes) -> bytes:
    return value


def plan_of() -> Plan:
    return Pipeline("g").read("orders").process(charge).for_each_batch(print, name="days").plan()


def query(folder: Path, **attributes: Any) -> Query:
    nobody: Any = None
    made = Query(nobody, "g", plan_of().queries[0], Outputs("out", shape_of(bytes), "127.0.0.1:1"), folder)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("ask", ["poll", "is_quiet", "stop"])
def test_a_query_whose_jvm_is_gone_has_failed_with_a_sentence(tmp_path: Path, ask: str) -> None:
    """Whoever finds out, nothing is raised where it is watched or stopped, and nothing is left to wait for."""
    found = query(tmp_path, _running=Gone(), state=State.RUNNING)
    {"poll": lambda: found.poll(0.0), "is_quiet": found.is_quiet, "stop": found.stop}[ask]()
    assert found.is_quiet()
    assert found.state is State.FAILED
    assert isinstance(found.error, Halted)
    assert str(found.error) == (
        "query 'days' failed: Spark does not answer any more (ConnectionRefusedError): its JVM has ended, or was "
        "killed. Nothing is lost: mend it and run again, it goes on where it was"
    )


def test_a_query_that_was_done_before_the_jvm_went_stays_done(tmp_path: Path) -> None:
    """Closing a session comes after the end of its queries."""
    found = query(tmp_path, _running=Gone(), state=State.DONE)
    found.stop()
    assert (found.state, found.error) == (State.DONE, None)


def test_a_query_that_is_closing_is_not_started_again(tmp_path: Path) -> None:
    """It failed, and waits; then somebody wants quiet."""
    found = query(tmp_path, state=State.WAITING)
    found.close()
    found.poll(1e9)
    assert found.state is State.WAITING
    assert found.is_quiet()


class Held:
    """Answers as Spark's query does in the middle of a batch."""

    isActive = True  # noqa: N815 # Spark's name

    def stop(self) -> None:
        self.isActive = False


class Unstarted(Queries):
    """Queries whose start to the end comes to it at once, and tells whether a batch ran then."""

    def _start(self, *, to_end: bool) -> None:
        assert to_end
        for each in self._queries:
            assert each.is_quiet()
            each.state = State.DONE


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "stopped"])
def test_a_run_to_the_end_waits_for_a_batch_until_it_ends_or_somebody_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """No patience is too short for that; and it is told whether the end was reached."""
    monkeypatch.setattr(queries_module, "QUIET_S", 0.0)
    nobody: Any = None
    queries = Unstarted(nobody, plan_of(), tmp_path, "127.0.0.1:1")
    (found,) = queries._queries
    held: Any = Held()
    found._running, found._busy, found.state = held, True, State.RUNNING
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(queries.run_to_end)
        assert found._closing.wait(30)
        if ends:
            held.isActive = False
        else:
            queries.stop()
        assert answer.result(30) is ends


def at(**positions: int) -> Positions:
    return Positions({"out": TopicPositions("x", {int(name[1:]): each for name, each in positions.items()})})


def test_what_retention_took_from_a_batch_is_counted_up_to_its_end() -> None:
    """What is only entered is not read, and so not lost; nor is what lies behind the batch."""
    seen = {"out": TopicSeen("x", {0: 5, 1: 50, 2: 9, 3: 2}, {0: 90, 1: 90, 2: 90, 3: 90})}
    assert removed(at(p0=3, p1=10, p3=2), at(p0=20, p1=20, p2=20, p3=20), seen) == {("out", 0): 2, ("out", 1): 10}
    assert removed(at(p0=3), at(p0=20), {}) == {}


def test_a_loss_is_said_when_the_batch_begins_and_counted_when_it_is_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch that comes again is counted once."""
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for number, position in ((0, 3), (1, 20)):
        stored = f'{{"version": 1, "topics": {{"out": {{"id": "x", "positions": {{"0": {position}}}}}}}}}'
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{stored}")
    (tmp_path / "commits" / "0").write_text("v1")
    found = query(tmp_path, seen={"out": TopicSeen("x", {0: 8}, {0: 90})})
    with caplog.at_level(logging.WARNING, "anabranch.spark.queries"):
        found._count_lost(1)
        found._count_lost(1)
    assert "query days: out/0: retention removed 5 offsets from 3 on" in caplog.text
    assert found.lost_to_retention() == 0
    (tmp_path / "commits" / "1").write_text("v1")
    assert found.lost_to_retention() == 5
