"""What our broker does not have yet, from a scripted source through the plane: fault 1, and the faults of a group.

No engine: every call that is submitted is answered at once, unless a test says otherwise.
"""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Self

from anabranch.control import effects
from anabranch.control.events import Completed, Stop, Tick
from anabranch.control.plane import Plane
from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.core.policies import Commit, Gate
from anabranch.core.work import Completion, TopicPartition
from anabranch.testing.scripted_source import (
    Aborted,
    Await,
    Compacted,
    Crash,
    Give,
    Lose,
    Marker,
    RefuseCommits,
    Revoke,
    ScriptedLog,
    ScriptedSource,
    Trim,
    record,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.control.events import Event
    from anabranch.testing.script import Step

ONE = TopicPartition("orders", 0)
TWO = TopicPartition("orders", 1)


class Miniature:
    """A source and a plane, joined on the test's own thread."""

    def __init__(self, script: Sequence[Step], log: ScriptedLog | None = None, gate: Gate | None = None) -> None:
        policy = PlanePolicy((StepPolicy("handle"),), commit=Commit(0.01, 1, 0.0), gate=gate or Gate())
        self.plane = Plane(policy)
        self._events: queue.SimpleQueue[Sequence[Event]] = queue.SimpleQueue()
        self.source = ScriptedSource(script, self._events.put, log=log, grace_s=2.0)
        self.log = self.source.log
        self.handled: list[int] = []
        self.released: list[TopicPartition] = []

    def __enter__(self) -> Self:
        self.source.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()
        assert self.source.join(10)

    def run(self, *, stops: bool = True) -> None:
        """Play the script to its end; then stop as a run does, unless told not to."""
        while not self.source.finished.is_set() or not self._events.empty():
            self._turn()
        assert not self.source.failure
        if stops:
            self._step(Stop(time.monotonic() + 5))
            while self.plane.statistics().partitions:
                self._turn()

    def _turn(self) -> None:
        try:
            for event in self._events.get(timeout=0.01):
                self._step(event)
            self.source.taken()
        except queue.Empty:
            self._step(Tick())

    def _step(self, event: Event) -> None:
        wanted = self.plane.step(event, time.monotonic())
        self.plane.check_invariants()
        for effect in wanted:
            if isinstance(effect, effects.Submit):
                self.handled += [task.record.offset for task in effect.tasks]
                self._step(Completed([Completion(task, (), None) for task in effect.tasks]))
            elif isinstance(effect, effects.Pause | effects.Resume | effects.Commit | effects.Released):
                self.source.do([effect])


def test_a_marker_behind_the_last_record_is_passed() -> None:
    """The committed position stands behind the marker: nobody is left to wait for an offset without a record."""
    with Miniature([Give(ONE), record(ONE, b"a"), record(ONE, b"b"), Marker(ONE), Await(ONE, 3)]) as world:
        world.run()
    assert world.handled == [0, 1]
    assert world.log.committed(ONE) == 3


def test_markers_between_records_are_passed() -> None:
    """Transactions of one record each: every second offset is a hole."""
    script: list[Step] = [Give(ONE)]
    for _ in range(50):
        script += [record(ONE, b"a"), Marker(ONE)]
    with Miniature([*script, Await(ONE, 100)]) as world:
        world.run()
    assert world.handled == list(range(0, 100, 2))


def test_an_aborted_tail_is_passed_and_what_follows_is_read() -> None:
    """Nothing but aborted records and their marker at the end: the position passes them, and later records come."""
    script = [Give(ONE), record(ONE, b"a"), Aborted(ONE, 7), Await(ONE, 9), record(ONE, b"b"), Await(ONE, 10)]
    with Miniature(script) as world:
        world.run()
    assert world.handled == [0, 9]


def test_a_partition_of_nothing_but_holes_is_committed() -> None:
    """Only an aborted transaction was ever written."""
    with Miniature([Give(ONE), Aborted(ONE, 3), Await(ONE, 4)]) as world:
        world.run()
    assert world.handled == []


def test_compaction_leaves_holes_that_stall_nothing() -> None:
    """Most of the log was compacted away, also its last records."""
    script = [
        Give(ONE),
        Compacted(ONE, 5),
        record(ONE, b"a"),
        Compacted(ONE, 90),
        record(ONE, b"b"),
        Compacted(ONE, 99),
    ]
    with Miniature([*script, Await(ONE, 99)]) as world:
        world.run()
    assert world.handled == [5, 90]


def test_retention_that_passes_the_position_is_counted() -> None:
    """The start of the log moves while nobody reads; what is gone is counted and nothing waits for it."""
    log = ScriptedLog()
    with Miniature([Give(ONE), record(ONE, b"a"), Await(ONE, 1), Lose(ONE)], log) as world:
        world.run(stops=False)
    script = [*[record(ONE, b"a")] * 9, Trim(ONE, 6), Give(ONE), Await(ONE, 10)]
    with Miniature(script, log) as world:
        world.run()
        assert world.source.statistics()["lost_to_retention"] == {"orders/0": 5}
    assert world.handled == [6, 7, 8, 9]


def test_a_refused_commit_is_tried_again() -> None:
    """A commit that was refused is not taken for done: the position is there in the end."""
    with Miniature([Give(ONE), RefuseCommits(3), record(ONE, b"a"), Await(ONE, 1)]) as world:
        world.run()
    assert [position.position for _, position in world.log.commits] == [1]


def test_a_fenced_commit_means_that_all_is_lost() -> None:
    """Nothing more is committed by the fenced one; given again, the record runs again."""
    log = ScriptedLog()
    script = [Give(ONE, TWO), RefuseCommits(1, fenced=True), record(ONE, b"a"), record(TWO, b"b")]
    with Miniature(script, log) as world:
        world.run(stops=False)
        while world.source.statistics()["positions"]:
            world._turn()
        world._turn()
        assert not world.plane.statistics().partitions
    assert log.commits == []
    with Miniature([Give(ONE, TWO), Await(ONE, 1), Await(TWO, 1)], log) as world:
        world.run()
    assert world.handled == [0, 0]


def test_a_revoked_partition_is_committed_before_it_goes_and_comes_back_where_it_was() -> None:
    """What moves is drained; the other partition is not asked."""
    script = [Give(ONE, TWO), *[record(ONE, b"a")] * 5, *[record(TWO, b"a")] * 5, Revoke(ONE)]
    with Miniature([*script, *[record(ONE, b"b")] * 2, Give(ONE), Await(ONE, 7), Await(TWO, 5)]) as world:
        world.run()
    assert sorted(world.handled) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6]


def test_after_a_crash_the_next_source_goes_on_from_what_was_committed() -> None:
    """Nothing is lost; what was handled and not committed is handled again."""
    log = ScriptedLog()
    with Miniature([Give(ONE), record(ONE, b"a"), Await(ONE, 1), record(ONE, b"b"), Crash()], log) as first:
        first.run(stops=False)
    with Miniature([Give(ONE), record(ONE, b"c"), Await(ONE, 3)], log) as second:
        second.run()
    assert set(first.handled) | set(second.handled) == {0, 1, 2}
    assert second.handled[-1] == 2


def test_a_closed_gate_holds_back_its_partition_only() -> None:
    """A gate of four records: the script writes many more at once, and all of them are handled in order."""
    script = [Give(ONE, TWO), *[record(ONE, b"a")] * 300, *[record(TWO, b"a")] * 300, Await(ONE, 300), Await(TWO, 300)]
    with Miniature(script, gate=Gate(records_max=4)) as world:
        world.run()
    assert len(world.handled) == 600
