"""Who may begin, who is tried again, and how a Spark run ends: the supervisor, event by event."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.errors import Halted, PeerError
from anabranch.kafka.errors import FencedError, UnreachableError
from anabranch.runtime.result import DONE, DRAIN_INCOMPLETE, FORCED, STOPPED, Result
from anabranch.spark.lease import DURATION_S
from anabranch.spark.supervision import (
    Admit,
    CancelJob,
    Dismiss,
    Effect,
    Ending,
    Event,
    Finished,
    Heard,
    JobEnded,
    Joined,
    MemberEnded,
    Refuse,
    Silent,
    StartJob,
    StopMembers,
    Term,
    Tick,
)
from anabranch.spark.supervisor import DEATHS_MAX, SILENT_S, STORY_S, TASKS_S, Supervisor

FIRST = Term(1, 0)
WORKING: dict[str, Any] = {"settled": 0, "source": {"rebalances": 1}}


class Story:
    """A supervisor and its clock."""

    def __init__(self, members: int = 2) -> None:
        self.now = 100.0
        self.supervisor = Supervisor("billing", members, drain_s=30.0)
        self.done: list[Effect] = []
        assert self.supervisor.start(self.now) == [StartJob(1)]

    def step(self, *events: Event, after_s: float = 0.0) -> list[Effect]:
        """Take events after a while; answer what the last one led to."""
        self.now += after_s
        effects: list[Effect] = []
        for event in events:
            effects = self.supervisor.step(event, self.now)
            self.done += effects
        return effects

    def running(self) -> Story:
        """Let both members begin and join the group."""
        for index in (0, 1):
            self.step(Joined(index, FIRST), Heard(index, FIRST, WORKING))
        return self

    @property
    def result(self) -> Result | None:
        return next((effect.result for effect in self.done if isinstance(effect, Finished)), None)


def halted(sentence: str = "no more") -> Result:
    return Result.of_error(Halted(sentence))


def test_members_begin_at_once_and_a_stop_waits_for_all_of_them() -> None:
    """The ordinary life of a run."""
    story = Story().running()
    assert story.step(Ending(STOPPED, 3.0)) == [StopMembers(3.0)]
    assert story.step(MemberEnded(0, FIRST, STOPPED)) == [Dismiss(0, FIRST, again=False)]
    story.step(MemberEnded(1, FIRST, STOPPED))
    assert story.result is None
    assert story.step(JobEnded(1)) == [Finished(STOPPED)]


def test_a_job_that_does_not_end_though_its_members_have_is_cancelled() -> None:
    """Members that never got a slot would wait for one for ever."""
    story = Story(members=3).running()
    story.step(Ending(DONE), MemberEnded(0, FIRST, STOPPED), MemberEnded(1, FIRST, STOPPED))
    assert story.step(Tick(), after_s=TASKS_S) == [CancelJob(), Finished(DONE)]


def test_a_run_that_ends_before_anyone_has_come_cancels_its_job() -> None:
    """There is nothing to drain."""
    assert Story().step(Ending(STOPPED)) == [StopMembers(None), CancelJob(), Finished(STOPPED)]


def test_who_comes_when_the_run_ends_is_refused_and_not_tried_again() -> None:
    """A late attempt must let its Spark task end well, or Spark would go on trying."""
    story = Story().running()
    story.step(Silent(0, FIRST), Ending(STOPPED))
    assert story.step(Joined(0, Term(1, 1))) == [Refuse(0, Term(1, 1), "the run is ending")]


@pytest.mark.parametrize("error", [Halted("poison"), PeerError("not authorised")])
def test_an_error_of_one_member_ends_the_run_with_its_sentence(error: Any) -> None:
    """Spark is not asked to try it again; the others are stopped at once."""
    story = Story().running()
    effects = story.step(MemberEnded(0, FIRST, Result.of_error(error)))
    assert effects == [Dismiss(0, FIRST, again=False), StopMembers(0.0)]
    story.step(MemberEnded(1, FIRST, STOPPED), JobEnded(1))
    assert story.result is not None
    assert story.result.error is error


def test_the_first_error_is_the_one_that_is_told() -> None:
    """What follows from it is not news."""
    story = Story().running()
    story.step(MemberEnded(0, FIRST, halted("first")), MemberEnded(1, FIRST, halted("second")), JobEnded(1))
    assert story.result is not None
    assert str(story.result.error) == "first"


def test_an_error_that_comes_while_the_run_stops_is_its_result() -> None:
    """A stop does not hide a halt."""
    story = Story().running()
    story.step(Ending(STOPPED), MemberEnded(0, FIRST, halted()), MemberEnded(1, FIRST, STOPPED), JobEnded(1))
    assert story.result is not None
    assert story.result.exit_code == 4


def test_a_member_that_died_is_let_in_again_when_the_lease_of_the_dead_one_is_over() -> None:
    """It may not be dead: behind a broken network it begins calls for as long as its last answer allows."""
    story = Story().running()
    story.step(Heard(0, FIRST, {"settled": 5}), Silent(0, FIRST))
    assert story.step(Joined(0, Term(1, 1)), after_s=0.5) == [Admit(0, DURATION_S - 0.5)]


def test_a_member_that_died_long_ago_is_let_in_again_at_once() -> None:
    """Its lease is over by itself."""
    story = Story().running()
    story.step(Heard(0, FIRST, {"settled": 5}), Silent(0, FIRST))
    assert story.step(Joined(0, Term(1, 1)), after_s=DURATION_S) == [Admit(0, 0.0)]


def test_who_follows_a_member_that_has_told_its_end_waits_for_no_lease() -> None:
    """Who has ended begins nothing."""
    story = Story().running()
    story.step(Heard(0, FIRST, {"settled": 5}), MemberEnded(0, FIRST, STOPPED))
    assert story.step(Joined(0, Term(1, 1))) == [Admit(0, 0.0)]


def test_a_member_of_a_job_that_is_over_is_waited_for_while_it_is_answered() -> None:
    """Spark has given up on it, and still it reports: the next job's member waits for its lease all the same."""
    story = Story().running()
    story.step(Heard(0, FIRST, {"settled": 5}), JobEnded(1, "executor lost"))
    story.step(Heard(0, FIRST), Tick(), after_s=0.5)
    assert story.step(Joined(0, Term(2, 0))) == [Admit(0, DURATION_S)]


def test_a_member_that_waits_and_loses_its_connection_waits_for_the_rest() -> None:
    """The first welcome may have been lost; the second must not let it begin too early."""
    story = Story().running()
    story.step(Heard(0, FIRST, {"settled": 5}), Joined(0, Term(1, 1)))
    assert story.step(Joined(0, Term(1, 1)), after_s=0.5) == [Admit(0, DURATION_S - 0.5)]


def test_a_member_that_keeps_dying_waits_longer_each_time_and_ends_the_run_at_last() -> None:
    """Its first record kills it; the sentence says where to look."""
    story = Story()
    waits = []
    for attempt in range(DEATHS_MAX):
        (effect,) = story.step(Joined(0, Term(1, attempt)))
        assert isinstance(effect, Admit)
        waits.append(effect.wait_s)
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0]
    refused, stop, *_ = story.step(Joined(0, Term(1, DEATHS_MAX)))
    assert isinstance(refused, Refuse)
    assert stop == StopMembers(0.0)
    story.step(JobEnded(1))
    assert story.result is not None
    assert "died 10 times without settling a record" in str(story.result.error)


def test_a_member_that_settles_something_has_all_its_lives_back() -> None:
    """Dying now and then for months is not dying again and again."""
    story = Story()
    for attempt in range(3 * DEATHS_MAX):
        (effect,) = story.step(Joined(0, Term(1, attempt)))
        assert effect == Admit(0, 0.0)
        story.step(Heard(0, Term(1, attempt), {"settled": 1}))
        story.now += DURATION_S


def test_a_member_of_an_idle_topic_has_its_lives_back_after_a_minute() -> None:
    """There is nothing to settle, and still it lives."""
    story = Story()
    for attempt in range(3 * DEATHS_MAX):
        (effect,) = story.step(Joined(0, Term(1, attempt)))
        assert effect == Admit(0, 0.0)
        story.step(Heard(0, Term(1, attempt), WORKING), after_s=61.0)
        story.now += DURATION_S


def test_a_broken_connection_is_not_a_death() -> None:
    """The member comes back with its term, and goes on."""
    story = Story().running()
    for _ in range(3 * DEATHS_MAX):
        story.step(Silent(0, FIRST))
        assert story.step(Joined(0, FIRST)) == [Admit(0, 0.0)]


def test_a_member_that_comes_back_while_the_run_ends_is_told_to_stop_again() -> None:
    """The order may have been lost with its connection; and its drain is waited for."""
    story = Story().running()
    story.step(MemberEnded(1, FIRST, STOPPED), Ending(STOPPED, 20.0), Silent(0, FIRST))
    assert story.step(Joined(0, FIRST), after_s=1.0) == [Admit(0, 0.0), StopMembers(20.0)]
    for _ in range(3):
        assert story.step(Heard(0, FIRST), after_s=SILENT_S - 1) == []
    story.step(MemberEnded(0, FIRST, STOPPED), JobEnded(1))
    assert story.result == STOPPED


def test_an_older_attempt_is_refused_once_a_newer_one_has_come() -> None:
    """Two attempts at once: the newer one is the member."""
    story = Story()
    story.step(Joined(0, Term(1, 1)))
    (refused,) = story.step(Joined(0, FIRST))
    assert isinstance(refused, Refuse)


def test_a_member_that_is_fenced_by_its_own_successor_goes_quietly() -> None:
    """It was frozen, or cut off; the newer attempt has its place."""
    story = Story().running()
    story.step(Joined(0, Term(1, 1)))
    fenced = Result.of_error(FencedError("fenced"))
    assert story.step(MemberEnded(0, FIRST, fenced)) == [Dismiss(0, FIRST, again=False)]
    assert not story.supervisor.is_ending


def test_a_member_that_is_fenced_by_a_stranger_ends_the_run_and_no_place_is_freed() -> None:
    """Trying again would fence the other run, and so on for ever; freeing a place would put its member out."""
    story = Story().running()
    story.step(MemberEnded(0, FIRST, Result.of_error(FencedError("fenced"))))
    story.step(MemberEnded(1, FIRST, STOPPED), JobEnded(1))
    assert story.result is not None
    assert "another Spark run uses group billing" in str(story.result.error)
    assert story.supervisor.freeable() == []


def test_places_where_nobody_joined_the_group_are_not_freed() -> None:
    """They may be another run's."""
    story = Story()
    story.step(Joined(0, FIRST), Heard(0, FIRST, WORKING), Joined(1, FIRST), Heard(1, FIRST, {"settled": 0}))
    assert story.supervisor.freeable() == [0]


def test_a_member_that_finds_no_broker_at_its_first_start_ends_the_run() -> None:
    """The address is wrong for that machine, and waiting does not mend it."""
    story = Story()
    story.step(Joined(0, FIRST))
    effects = story.step(MemberEnded(0, FIRST, Result.of_error(UnreachableError("no broker"))))
    assert effects[:2] == [Dismiss(0, FIRST, again=False), StopMembers(0.0)]


def test_a_member_that_finds_no_broker_later_is_tried_again() -> None:
    """The broker restarts; it had answered before."""
    story = Story().running()
    effects = story.step(MemberEnded(0, FIRST, Result.of_error(UnreachableError("no broker"))))
    assert effects == [Dismiss(0, FIRST, again=True)]


def test_a_member_that_ended_by_itself_is_tried_again() -> None:
    """It lost its lease, and the driver lives after all."""
    story = Story().running()
    assert story.step(MemberEnded(0, FIRST, STOPPED)) == [Dismiss(0, FIRST, again=True)]


def test_a_job_that_spark_gives_up_on_is_started_again_after_a_while() -> None:
    """Its attempts begin at 0 again, and are newer all the same."""
    story = Story().running()
    story.step(JobEnded(1, "executor lost"))
    assert story.supervisor.next_deadline() == story.now + 0.5
    assert story.step(Tick(), after_s=0.5) == [StartJob(2)]
    assert story.step(Joined(0, Term(2, 0))) == [Admit(0, DURATION_S - 0.5)]
    (refused,) = story.step(Joined(1, Term(1, 5)))
    assert isinstance(refused, Refuse)


def test_a_job_that_fails_before_anyone_came_ends_the_run_with_sparks_words() -> None:
    """A missing package, no route to the driver: it will not get better."""
    story = Story()
    story.step(JobEnded(1, "ModuleNotFoundError: No module named 'anabranch'"))
    assert story.result is not None
    assert "ModuleNotFoundError: No module named 'anabranch'" in str(story.result.error)


def test_a_session_that_was_stopped_under_the_run_ends_it() -> None:
    """No other job can follow."""
    story = Story().running()
    story.step(JobEnded(1, "SparkContext was shut down", is_final=True))
    assert story.result is not None
    assert "has ended under the run" in str(story.result.error)


def test_jobs_that_fail_without_anything_settled_end_the_run_at_last() -> None:
    """The same patience as with a member."""
    story = Story().running()
    for job in range(1, DEATHS_MAX + 2):
        story.step(JobEnded(job, "again"))
        story.step(Tick(), after_s=20.0)
    assert story.result is not None
    assert "gave up on the members of group billing 10 times" in str(story.result.error)


def test_a_stop_between_two_jobs_ends_at_once() -> None:
    """Nobody is there."""
    story = Story().running()
    story.step(JobEnded(1, "executor lost"))
    assert Finished(STOPPED) in story.step(Ending(STOPPED))


def test_a_member_that_cannot_be_heard_is_not_waited_for() -> None:
    """What it had begun is repeated: exit code 5."""
    story = Story().running()
    story.step(Ending(STOPPED), MemberEnded(0, FIRST, STOPPED))
    story.step(Tick(), after_s=SILENT_S)
    assert story.step(Tick(), after_s=TASKS_S) == [CancelJob(), Finished(DRAIN_INCOMPLETE)]


def test_a_drain_that_never_ends_is_given_up() -> None:
    """A member that reports and does not end."""
    story = Story(members=1)
    story.step(Joined(0, FIRST), Ending(STOPPED, 1.0))
    for _ in range(int(STORY_S + 1)):
        assert story.result is None
        story.step(Heard(0, FIRST), after_s=1.0)
    assert story.result == DRAIN_INCOMPLETE


def test_a_forced_end_waits_for_nobody() -> None:
    """Also in the middle of a stop."""
    story = Story().running()
    story.step(Ending(STOPPED))
    assert story.step(Ending(FORCED)) == [CancelJob(), Finished(FORCED)]


def test_after_the_end_nobody_begins_and_nobody_is_tried_again() -> None:
    """Late words of a job that was cancelled."""
    story = Story().running()
    story.step(Ending(FORCED))
    (refused,) = story.step(Joined(0, Term(1, 1)))
    assert isinstance(refused, Refuse)
    assert story.step(MemberEnded(1, FIRST, halted())) == [Dismiss(1, FIRST, again=False)]
    assert story.step(JobEnded(1)) == []


INDEX = st.integers(0, 1)
TERM = st.builds(Term, st.integers(1, 3), st.integers(0, 3))
RESULT = st.sampled_from(
    [STOPPED, DRAIN_INCOMPLETE, halted(), Result.of_error(FencedError("x")), Result.of_error(UnreachableError("x"))]
)
STATISTICS = st.none() | st.builds(lambda settled: {"settled": settled, **WORKING}, st.integers(0, 3))
EVENT = st.one_of(
    st.builds(Joined, INDEX, TERM),
    st.builds(Heard, INDEX, TERM, STATISTICS),
    st.builds(MemberEnded, INDEX, TERM, RESULT),
    st.builds(Silent, INDEX, TERM),
    st.builds(JobEnded, st.integers(1, 3), st.sampled_from(["", "lost"]), st.booleans()),
    st.just(Tick()),
    st.builds(Ending, st.sampled_from([STOPPED, DONE, FORCED]), st.none() | st.floats(0, 5)),
)


@given(st.lists(st.tuples(EVENT, st.floats(0, 8)), max_size=40))
def test_whatever_happens_a_run_that_shall_end_ends_once_and_within_its_limits(
    events: list[tuple[Event, float]],
) -> None:
    """Any order of any events; then a stop, and time passes."""
    story = Story()
    for event, after_s in events:
        story.step(event, after_s=after_s)
    story.step(Ending(STOPPED))
    limit = story.now + 30.0 + STORY_S + 1
    while story.result is None and (deadline := story.supervisor.next_deadline()) is not None:
        assert deadline > story.now, "what was due is done"
        story.now = deadline
        story.step(Tick())
        assert story.now <= limit
    assert sum(isinstance(effect, Finished) for effect in story.done) == 1
    started = [effect.job for effect in story.done if isinstance(effect, StartJob)]
    assert started == sorted(set(started))
