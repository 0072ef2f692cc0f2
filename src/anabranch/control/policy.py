"""What the plane is told about a pipeline: how many steps, how each may run, what bounds hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.core.policies import Breaker, Commit, DeadLetters, Gate, Ordering, Retry


@dataclass(frozen=True, slots=True)
class StepPolicy:
    """One `process` step."""

    name: str
    concurrency: int = 256
    """Calls running at once in this process."""
    retry: Retry = field(default_factory=Retry)
    breaker: Breaker = field(default_factory=Breaker)


@dataclass(frozen=True, slots=True)
class PlanePolicy:
    """A pipeline as control sees it."""

    steps: tuple[StepPolicy, ...]
    ordering: Ordering = Ordering.KEY
    null_key_ordered: bool = False
    """Whether records without a key keep their order among themselves; otherwise each is on its own."""
    commit: Commit = field(default_factory=Commit)
    gate: Gate = field(default_factory=Gate)
    dead_letters: DeadLetters | None = None
    carryover: bool = True
    """Whether what is settled ahead travels in commit metadata."""
    jitter_seed: int = 0
    """Of the generator that spreads retries; a simulation gives its own."""
