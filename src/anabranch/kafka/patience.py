"""Asks again while a cluster says that something is only not there yet: a leader, or a coordinator, that moves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

AGAIN_S = 0.1
LEADER_MOVES = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "UNKNOWN_LEADER_EPOCH",
    }
)
"""Also what a topic answers that was made a moment ago."""
COORDINATOR_MOVES = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "_WAIT_COORD"}
)


def patiently(ask: Callable[[], T], passing: frozenset[str], patience_s: float) -> T:
    """Return what `ask` returns; ask again while it raises one of the passing errors, until patience is out. Blocks."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].name() not in passing or time.monotonic() > deadline:
                raise
        time.sleep(AGAIN_S)
