"""The states of a group, what moves it from one to the next, and what each state answers.

    Empty ──▶ PreparingRebalance ──▶ CompletingRebalance ──▶ Stable
      ▲ │            │  ▲                    │                 │
      │ ▼            │  └────────────────────┴─────────────────┘
      │ Dead         │
      └──────────────┘

Preparing: members are asked to join again. Completing: they have joined, a generation exists, and the leader's
assignment is awaited or on its way to the log. Stable: the assignment is durable and handed out.
"""

from collections.abc import Mapping
from enum import Enum

from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.core.errors import InternalError


class State(Enum):
    """Where a group is; the value is the name Kafka's clients know."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Cause(Enum):
    """Why a group moves."""

    REBALANCE = "a member came, went or changed"
    JOINED = "all that will join have joined"
    DESERTED = "nobody is left"
    ASSIGNED = "the assignment is durable"
    FORGOTTEN = "no members, no offsets"


TRANSITIONS: Mapping[tuple[State, Cause], State] = {
    (State.EMPTY, Cause.REBALANCE): State.PREPARING,
    (State.EMPTY, Cause.FORGOTTEN): State.DEAD,
    (State.PREPARING, Cause.JOINED): State.COMPLETING,
    (State.PREPARING, Cause.DESERTED): State.EMPTY,
    (State.COMPLETING, Cause.ASSIGNED): State.STABLE,
    (State.COMPLETING, Cause.REBALANCE): State.PREPARING,
    (State.STABLE, Cause.REBALANCE): State.PREPARING,
}

_OK, _AGAIN, _UNKNOWN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID

HEARTBEAT_ANSWERS: Mapping[State, ErrorCode] = {
    State.EMPTY: _UNKNOWN,
    State.PREPARING: _AGAIN,
    State.COMPLETING: _OK,
    State.STABLE: _OK,
    State.DEAD: _UNKNOWN,
}
"""To a member of the current generation."""

SYNC_ANSWERS: Mapping[State, ErrorCode] = {
    State.EMPTY: _UNKNOWN,
    State.PREPARING: _AGAIN,
    State.COMPLETING: _OK,
    State.STABLE: _OK,
    State.DEAD: _UNKNOWN,
}
"""To a member of the current generation; in Completing the answer comes with the assignment."""

COMMIT_ANSWERS: Mapping[State, ErrorCode] = {
    State.EMPTY: _UNKNOWN,
    State.PREPARING: _OK,
    State.COMPLETING: _AGAIN,
    State.STABLE: _OK,
    State.DEAD: _UNKNOWN,
}
"""To a member of the current generation. In Preparing it still owns its partitions and may say how far it came; in
Completing it may not own them any more."""


def next_state(state: State, cause: Cause) -> State:
    """Look the move up; one that is not in the table is a fault of ours."""
    try:
        return TRANSITIONS[state, cause]
    except KeyError:
        message = f"a group that is {state.value} cannot move because {cause.value}: please report it"
        raise InternalError(message) from None
