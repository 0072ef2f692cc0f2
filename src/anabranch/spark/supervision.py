"""What the supervisor of a Spark run is told, and what it answers: events in, effects out. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.runtime.result import Result


class Term(NamedTuple):
    """Which start of a place: the larger of two is the newer."""

    job: int
    attempt: int


# ── events ──


@dataclass(frozen=True, slots=True)
class Joined:
    """A member has connected and asks to begin; or it is back after its connection broke."""

    index: int
    term: Term


@dataclass(frozen=True, slots=True)
class Heard:
    """A member has reported."""

    index: int
    term: Term
    statistics: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class MemberEnded:
    """A member's run has ended by itself or because it was told to."""

    index: int
    term: Term
    result: Result


@dataclass(frozen=True, slots=True)
class Silent:
    """A member's connection has broken."""

    index: int
    term: Term


@dataclass(frozen=True, slots=True)
class JobEnded:
    """Spark is done with the job, or has given up on it."""

    job: int
    error: str = ""
    is_final: bool = False
    """Spark itself has ended: no other job can follow."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The run shall end: it was asked to, its targets are reached, or something outside of the lanes has failed."""

    result: Result
    drain_s: float | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = Joined | Heard | MemberEnded | Silent | JobEnded | Ending | Tick


# ── effects ──


@dataclass(frozen=True, slots=True)
class StartJob:
    """Have Spark start all members."""

    job: int


@dataclass(frozen=True, slots=True)
class Admit:
    """Let a member begin, after a while."""

    index: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not let this attempt begin."""

    index: int
    term: Term
    sentence: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Tell a member that its end was heard, and whether Spark shall try it again."""

    index: int
    term: Term
    again: bool


@dataclass(frozen=True, slots=True)
class StopMembers:
    """Have all members drain, commit and leave."""

    drain_s: float | None


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Have Spark kill what is left of the job."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is left to supervise."""

    result: Result


Effect = StartJob | Admit | Refuse | Dismiss | StopMembers | CancelJob | Finished
