"""The tracker beside a dumb model under random steps: a dictionary of offsets and whether they are settled."""

from itertools import groupby

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from anabranch.control.tracker import Tracker
from anabranch.core.errors import InternalError

WINDOW = 16
BATCH = 12


class TrackerModel(RuleBasedStateMachine):
    """Arrivals with holes, settlements in any order, wrong calls; small windows, so that all of the code is met."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = Tracker(100, window_max=WINDOW)
        self.position = 100
        self.offsets: list[int] = []
        self.settled: list[bool] = []

    @rule(gaps=st.lists(st.sampled_from([1, 1, 1, 2, 50]), max_size=BATCH))
    def arrived(self, gaps: list[int]) -> None:
        offsets = []
        for gap in gaps:
            self.position += gap
            offsets.append(self.position - 1)
        assert self.tracker.arrived(offsets) == len(self.offsets)
        self.offsets += offsets
        self.settled += [False] * len(offsets)

    @rule(gap=st.integers(0, 100))
    def moved(self, gap: int) -> None:
        self.position += gap
        self.tracker.moved(self.position)

    @precondition(lambda self: self.incomplete())
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        ordinal = data.draw(st.sampled_from(self.incomplete()))
        self.tracker.settle(ordinal)
        self.settled[ordinal] = True

    @precondition(lambda self: self.incomplete())
    @rule(data=st.data())
    def settle_many(self, data: st.DataObject) -> None:
        ordinals = data.draw(st.lists(st.sampled_from(self.incomplete()), unique=True))
        self.tracker.settle_many(ordinals)
        for ordinal in ordinals:
            self.settled[ordinal] = True

    @precondition(lambda self: self.incomplete())
    @rule(every=st.integers(2, 7), more=st.integers(BATCH // 2, BATCH))
    def settle_all_but_a_few_and_go_on(self, every: int, more: int) -> None:
        """What fills the stragglers: some records stay behind while many others pass."""
        ordinals = [ordinal for ordinal in self.incomplete() if ordinal % every]
        self.tracker.settle_many(ordinals)
        for ordinal in ordinals:
            self.settled[ordinal] = True
        self.arrived([1] * more)

    @precondition(lambda self: self.incomplete())
    @rule(among=st.integers(0, 4))
    def settle_one_of_the_oldest(self, among: int) -> None:
        incomplete = self.incomplete()
        ordinal = incomplete[min(among, len(incomplete) - 1)]
        self.tracker.settle(ordinal)
        self.settled[ordinal] = True

    @rule(data=st.data())
    def settle_what_is_not_incomplete(self, data: st.DataObject) -> None:
        incomplete = set(self.incomplete())
        wrong = [each for each in range(-3, len(self.offsets) + 3) if each not in incomplete]
        first = min(incomplete, default=0)
        ordinal = data.draw(st.sampled_from([each for each in wrong if first < each < first + BATCH] or wrong))
        with pytest.raises(InternalError):
            self.tracker.settle(ordinal)
        with pytest.raises(InternalError):
            self.tracker.settle_many([*self.incomplete()[:1], ordinal])
        for each in self.incomplete()[:1]:
            self.settled[each] = True

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        incomplete = self.incomplete()
        first = incomplete[0] if incomplete else None
        above = self.settled[first:] if first is not None else []
        tracker = self.tracker
        assert tracker.position == self.position
        assert tracker.committable == (self.position if first is None else self.offsets[first])
        assert tracker.blocker_ordinal == first
        assert tracker.incomplete == len(incomplete)
        assert tracker.ahead == sum(above)
        assert list(tracker.settled_ahead()) == self.runs(first)
        assert [tracker.offset_of(ordinal) for ordinal in incomplete] == [self.offsets[each] for each in incomplete]
        assert tracker.statistics().held <= 2 * (3 * len(incomplete) + 2) + 4 * WINDOW + BATCH
        tracker.check_invariants()

    def incomplete(self) -> list[int]:
        return [ordinal for ordinal, settled in enumerate(self.settled) if not settled]

    def runs(self, first: int | None) -> list[tuple[int, int]]:
        if first is None:
            return []
        runs = []
        for settled, group in groupby(range(first, len(self.offsets)), key=self.settled.__getitem__):
            if settled:
                ordinals = list(group)
                runs.append((self.offsets[ordinals[0]], self.offsets[ordinals[-1]]))
        return runs


TestTrackerModel = TrackerModel.TestCase
TestTrackerModel.settings = settings(max_examples=100, stateful_step_count=40)
