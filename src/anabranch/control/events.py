"""What happens to the plane: partitions come and go, records arrive, calls and deliveries end, time passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch.core.records import Record
    from anabranch.core.work import Completion, Delivery, TopicPartition


@dataclass(frozen=True, slots=True)
class Start:
    """Where one partition begins: the committed position, its metadata, and what these can be checked against."""

    position: int
    """Where reading begins: exclusive of all that is settled for certain."""
    metadata: str = ""
    """The commit metadata that was found: perhaps a carryover."""
    topic_id: str = ""
    log_start: int = 0
    log_end: int = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are ours from now on, each in a new epoch."""

    starts: Mapping[TopicPartition, Start]


@dataclass(frozen=True, slots=True)
class Revoked:
    """These partitions are about to move: drain them until `deadline`, then commit and forget."""

    partitions: Sequence[TopicPartition]
    deadline: float


@dataclass(frozen=True, slots=True)
class Lost:
    """These partitions are no longer ours: nothing of them may be committed."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one partition, in offset order; `position` is the consumer's own after them (it passes holes)."""

    partition: TopicPartition
    records: Sequence[Record]
    position: int
    keys: Sequence[bytes | None] | None = None
    """The ordering keys of the records, where these are not their own keys."""


@dataclass(frozen=True, slots=True)
class HighWatermarks:
    """Where partitions end now, as the consumer knows it: for true lag."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Completed:
    """Calls ended."""

    completions: Sequence[Completion]


@dataclass(frozen=True, slots=True)
class Delivered:
    """Outputs or dead letters were acknowledged, or refused for good."""

    deliveries: Sequence[Delivery]


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """The answer to a Commit effect, per partition: None, or why not. `fenced`: we are no longer a member."""

    errors: Mapping[TopicPartition, str | None]
    fenced: bool = False
    number: int | None = None
    """The number of the Commit; None stands for the oldest one of these partitions that is not answered yet."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Begin no new record; what has begun may end until `deadline`."""

    deadline: float


Event = Assigned | Revoked | Lost | Fetched | HighWatermarks | Completed | Delivered | CommitEnded | Tick | Stop
