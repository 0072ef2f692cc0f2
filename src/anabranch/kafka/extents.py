"""Which topics are meant, what was seen of them, and ranges of their offsets: values, apart from the client library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

START_ANEW: Final = "To begin anew, give the query another checkpointLocation"


@dataclass(frozen=True, slots=True)
class Topics:
    """Which topics are meant: names, or a pattern that whole names must match."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def covers(self, name: str) -> bool:
        """Tell whether a topic is meant."""
        if self.pattern is None:
            return name in self.names
        return not name.startswith("__") and re.fullmatch(self.pattern, name) is not None

    def __str__(self) -> str:
        return ", ".join(self.names) if self.pattern is None else f"pattern {self.pattern!r}"


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic as it was seen: its id (empty where the cluster does not tell) and its partitions' bounds."""

    id: str
    log_starts: Mapping[int, int]
    ends: Mapping[int, int]
    """How far each partition may be read: for read_committed up to the first open transaction."""


Seen = Mapping[str, TopicSeen]


class Range(NamedTuple):
    """Offsets of one partition: from `start` up to, and without, `end`."""

    topic: str
    topic_id: str
    """The topic's id when the range was planned; empty when it is not known."""
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} from {self.start} to {self.end}"


def lost_sentence(topic: str, partition: int, position: int, lost: int) -> str:
    """Say that retention was faster than the reader."""
    return f"{topic}/{partition}: retention removed {lost} offsets from {position} on before they were read"


def made_again_sentence(topic: str) -> str:
    """Say that a topic is not the one that the checkpoint knows."""
    return (
        f"topic {topic} is not the one that the checkpoint has positions of: it was deleted and made again, or this is "
        f"another cluster. {START_ANEW}"
    )
