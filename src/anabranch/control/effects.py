"""What the plane wants done, in this order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch.core.history import How
    from anabranch.core.work import Task, TopicPartition


@dataclass(frozen=True, slots=True)
class Submit:
    """Call the step's handler for each of these; a completion must come for every one."""

    tasks: Sequence[Task]


@dataclass(frozen=True, slots=True)
class Cancel:
    """End these calls if they can be ended; their completions must still come."""

    tasks: Sequence[Task]


@dataclass(frozen=True, slots=True)
class Write:
    """Send each task's `outputs`; a delivery must come for every one, when all of its outputs are acknowledged."""

    tasks: Sequence[Task]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Send the task's record, byte for byte, to the dead letters, with its cause; a delivery must come."""

    task: Task
    cause: BaseException
    step: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop fetching these."""

    partitions: Sequence[TopicPartition]


class Room(NamedTuple):
    """How much more of a partition may be taken in before its bound is reached."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Fetch these again."""

    partitions: Sequence[TopicPartition]
    rooms: Mapping[TopicPartition, Room] = field(default_factory=dict)
    """For how much of each there is room now."""


@dataclass(frozen=True, slots=True)
class Position:
    """What to commit for one partition."""

    position: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Store these positions, then answer with CommitEnded. One is in flight at a time, apart from revokes."""

    positions: Mapping[TopicPartition, Position]
    number: int = 0
    """Rises with each one; the answer should carry it."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing is left to do for these records. Only a plane that was asked to report it says so, before any commit."""

    tasks: Sequence[Task]
    how: How


@dataclass(frozen=True, slots=True)
class Released:
    """These partitions are drained and, if they could be, committed: the revoke may go on."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop everything and say this."""

    reason: str
    cause: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """All that was begun has ended, or the deadline has passed (`complete` is False); the last commit was answered."""

    complete: bool


Effect = Settled | Cancel | Write | DeadLetter | Submit | Pause | Resume | Commit | Released | Halt | Stopped
