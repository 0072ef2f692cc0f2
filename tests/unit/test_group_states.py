"""The tables of a group's states: what moves it, and what it answers."""

from itertools import product

import pytest

from anabranch.broker.group.states import (
    COMMIT_ANSWERS,
    HEARTBEAT_ANSWERS,
    SYNC_ANSWERS,
    TRANSITIONS,
    Cause,
    State,
    next_state,
)
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.core.errors import InternalError

MOVES = {
    ("Empty", "REBALANCE", "PreparingRebalance"),
    ("Empty", "FORGOTTEN", "Dead"),
    ("PreparingRebalance", "JOINED", "CompletingRebalance"),
    ("PreparingRebalance", "DESERTED", "Empty"),
    ("CompletingRebalance", "ASSIGNED", "Stable"),
    ("CompletingRebalance", "REBALANCE", "PreparingRebalance"),
    ("Stable", "REBALANCE", "PreparingRebalance"),
}


def test_the_table_has_exactly_these_moves() -> None:
    """A move that is added or lost is a change of the protocol, and is made here too."""
    assert {(state.value, cause.name, after.value) for (state, cause), after in TRANSITIONS.items()} == MOVES


@pytest.mark.parametrize(("state", "cause"), list(product(State, Cause)))
def test_a_move_outside_the_table_is_an_error_of_ours(state: State, cause: Cause) -> None:
    """Every pair is either in the table or refused, never guessed."""
    if (state, cause) in TRANSITIONS:
        assert next_state(state, cause) is TRANSITIONS[state, cause]
    else:
        with pytest.raises(InternalError, match=f"{state.value} cannot move"):
            next_state(state, cause)


def test_every_state_but_dead_can_be_reached_and_left() -> None:
    """No state is a trap, apart from the one that is meant to be."""
    assert set(TRANSITIONS.values()) == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.DEAD}


@pytest.mark.parametrize("table", [HEARTBEAT_ANSWERS, SYNC_ANSWERS, COMMIT_ANSWERS])
def test_every_state_has_an_answer(table: dict[State, ErrorCode]) -> None:
    """A request meets a group in any state."""
    assert set(table) == set(State)


def test_members_are_sent_to_join_again_when_and_only_when_it_is_time() -> None:
    """Preparing sends heartbeats and syncs to join; only Completing sends commits there."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    assert [state for state in State if HEARTBEAT_ANSWERS[state] is again] == [State.PREPARING]
    assert [state for state in State if SYNC_ANSWERS[state] is again] == [State.PREPARING]
    assert [state for state in State if COMMIT_ANSWERS[state] is again] == [State.COMPLETING]
