"""Timers: the first that is due, later deadlines cheap, the heap bounded."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.group.timers import Kind, Timer, Timers

ONE, TWO = Timer(Kind.SESSION, "g", "one"), Timer(Kind.SESSION, "g", "two")


def test_a_timer_that_moves_is_due_when_it_was_last_set_for() -> None:
    """Moved later it does not fire early, moved earlier it does not fire late."""
    timers = Timers()
    timers.set(ONE, 10)
    timers.set(ONE, 20)
    assert timers.next_deadline() == 20
    timers.set(ONE, 5)
    assert timers.next_deadline() == 5
    assert timers.take_due(4.9) is None
    assert timers.take_due(5) == ONE
    assert timers.next_deadline() is None


def test_a_cancelled_timer_is_not_due() -> None:
    """Cancelling twice, or what never ran, is nothing."""
    timers = Timers()
    timers.set(ONE, 1)
    timers.set(TWO, 2)
    timers.cancel(ONE)
    timers.cancel(ONE)
    assert timers.take_due(10) == TWO
    assert timers.take_due(10) is None


def test_the_heap_does_not_grow_with_the_number_of_heartbeats() -> None:
    """A million heartbeats of one member, or timers set and cancelled, leave the heap in proportion to what runs."""
    timers = Timers()
    for beat in range(10_000):
        timers.set(ONE, 10 + beat)
        timers.set(TWO, 20_000 - beat)
        timers.cancel(TWO)
    assert timers.entries <= 2 * 2 + 65
    assert len(timers) == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 20)), st.booleans())))
def test_timers_behave_like_a_dictionary_of_deadlines(steps: list[tuple[str, int | None, bool]]) -> None:
    """Against the dumb model: the smallest deadline is the next one, and what is due is taken in order."""
    timers, model = Timers(), dict[Timer, float]()
    for name, deadline, has_to_fire in steps:
        timer = Timer(Kind.SESSION, "g", name)
        if deadline is None:
            timers.cancel(timer)
            model.pop(timer, None)
        else:
            timers.set(timer, deadline)
            model[timer] = deadline
        assert timers.next_deadline() == min(model.values(), default=None)
        if has_to_fire:
            taken = timers.take_due(10)
            due = {one for one, when in model.items() if when <= 10 and when == min(model.values())}
            assert taken in due if due else taken is None
            if taken is not None:
                del model[taken]
    assert len(timers) == len(model)
