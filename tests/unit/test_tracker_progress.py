"""The tracker in plain steps: what may be committed, what holds it back, what is refused."""

from itertools import pairwise

import pytest

from anabranch.control.tracker import WINDOW_MAX, Tracker
from anabranch.core.errors import InternalError


def test_a_slow_head_holds_the_committable_position_until_it_is_settled() -> None:
    """A later completion is ahead, not committable; when the head is done both are passed at once."""
    tracker = Tracker(99)
    first = tracker.arrived([99, 100, 101])
    tracker.settle(first + 1)
    assert (tracker.committable, tracker.ahead, tracker.blocker_ordinal, tracker.incomplete) == (99, 1, first, 2)
    assert list(tracker.settled_ahead()) == [(100, 100)]
    tracker.settle(first)
    assert (tracker.committable, tracker.ahead, tracker.blocker_ordinal) == (101, 0, first + 2)


def test_with_nothing_incomplete_the_position_is_committable() -> None:
    """The consumer's own position passes holes at the end: markers, an aborted tail, compacted records."""
    tracker = Tracker(0)
    tracker.settle_many([tracker.arrived([0]), tracker.arrived([1])])
    assert tracker.committable == 2
    tracker.moved(7)
    assert (tracker.committable, tracker.position, tracker.blocker_ordinal) == (7, 7, None)


def test_holes_neither_stall_nor_let_anything_pass() -> None:
    """Offsets that never arrive are in nobody's way, whether before, between or after the records."""
    tracker = Tracker(10)
    first = tracker.arrived([1000, 1005, 5000])
    assert tracker.committable == 1000
    tracker.settle(first)
    assert tracker.committable == 1005
    tracker.settle(first + 2)
    assert tracker.committable == 1005
    tracker.settle(first + 1)
    assert tracker.committable == 5001


def test_a_settled_run_spans_the_holes_between_its_records_and_nothing_else() -> None:
    """Between two settled arrivals there is no record; next to an incomplete one a run ends at a settled record."""
    tracker = Tracker(0)
    tracker.arrived([0, 3, 7, 20, 30])
    tracker.settle_many([1, 2, 4])
    assert list(tracker.settled_ahead()) == [(3, 7), (30, 30)]


def test_ordinals_are_consecutive_and_never_used_twice() -> None:
    """They count arrivals, also over trimming; an empty batch uses none."""
    tracker = Tracker(0, window_max=32)
    for batch in range(100):
        assert tracker.arrived(range(batch * 10, batch * 10 + 5)) == batch * 5
        assert tracker.arrived([]) == batch * 5 + 5
        tracker.settle_many(range(batch * 5, batch * 5 + 5))


@pytest.mark.parametrize("ordinal", [0, 5, -1, 10**12])
def test_settling_what_is_not_incomplete_is_refused_and_changes_nothing(ordinal: int) -> None:
    """A record that was settled, or never came, cannot be counted: the state stays what it was."""
    tracker = Tracker(0)
    tracker.arrived([0, 1, 2])
    tracker.settle(0)
    before = tracker.statistics()
    with pytest.raises(InternalError, match=f"ordinal {ordinal} is not incomplete"):
        tracker.settle(ordinal)
    with pytest.raises(InternalError, match=f"ordinal {ordinal} is not incomplete"):
        tracker.settle_many([ordinal])
    assert tracker.statistics() == before
    tracker.check_invariants()


def test_a_batch_with_a_wrong_ordinal_leaves_a_state_that_is_right() -> None:
    """What came before the wrong one is settled and counted, what came after is not."""
    tracker = Tracker(0)
    tracker.arrived(range(10))
    with pytest.raises(InternalError):
        tracker.settle_many([3, 1, 3, 5])
    assert (tracker.incomplete, tracker.ahead, list(tracker.settled_ahead())) == (8, 2, [(1, 1), (3, 3)])
    tracker.check_invariants()


@pytest.mark.parametrize("offsets", [[4], [5, 5], [6, 5], [7, 8, 8]])
def test_offsets_that_do_not_rise_are_refused(offsets: list[int]) -> None:
    """A consumer that went back belongs to a new epoch: one tracker never sees an offset twice."""
    tracker = Tracker(5)
    with pytest.raises(InternalError, match="begin a new epoch"):
        tracker.arrived(offsets)
    with pytest.raises(InternalError, match="begin a new epoch"):
        tracker.moved(4)
    assert (tracker.position, tracker.incomplete) == (5, 0)
    tracker.check_invariants()


def test_memory_follows_what_is_incomplete_when_the_prefix_completes() -> None:
    """The settled prefix is trimmed: a long run does not make a large tracker."""
    tracker = Tracker(0)
    held_most = 0
    for start in range(0, 400_000, 1000):
        first = tracker.arrived(range(start, start + 1000))
        tracker.settle_many(range(first, first + 1000))
        held_most = max(held_most, tracker.statistics().held)
    assert held_most <= 10_000
    tracker.check_invariants()


def test_memory_follows_what_is_incomplete_behind_a_blocker_that_never_ends() -> None:
    """Three keys fail for ever while 1,000,000 others pass: memory stays at the window, and the ends are exact."""
    tracker = Tracker(0)
    stuck = {0, 150_001, 400_000}
    held_most = 0
    for start in range(0, 1_000_000, 5000):
        first = tracker.arrived(range(start, start + 5000))
        tracker.settle_many([ordinal for ordinal in range(first, first + 5000) if ordinal not in stuck])
        held_most = max(held_most, tracker.statistics().held)
    assert held_most <= WINDOW_MAX + 5000
    assert (tracker.committable, tracker.ahead, tracker.incomplete) == (0, 1_000_000 - 3, 3)
    assert list(tracker.settled_ahead()) == [(1, 150_000), (150_002, 399_999), (400_001, 999_999)]
    tracker.check_invariants()
    for ordinal, following in pairwise([*sorted(stuck), 1_000_000]):
        assert tracker.offset_of(ordinal) == ordinal
        tracker.settle(ordinal)
        assert tracker.committable == following
    assert tracker.statistics().incomplete == 0


def test_it_shows_itself_in_one_line() -> None:
    """A repr that a test or a log can rely on."""
    tracker = Tracker(5)
    tracker.arrived([5, 6])
    tracker.settle(1)
    assert repr(tracker) == "<Tracker committable=5 position=7 incomplete=1 ahead=1>"
