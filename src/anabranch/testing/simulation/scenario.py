"""What a simulated run is made of: records, handlers, faults and trouble, all drawn from one number."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random

from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.core.policies import Breaker, Commit, DeadLetters, Gate, Ordering, Retry


class TroubleKind(Enum):
    """What may befall a member."""

    CRASH = "crash"
    STOP = "stop"
    MOVE = "move"
    EVICT = "evict"
    FREEZE = "freeze"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that happens to one member, or to one partition, at a time."""

    at: float
    kind: TroubleKind
    target: int
    """The number of the member, or of the partition that moves."""
    to: int = 0
    """The number of the member that a partition moves to; it may be the same one."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often what goes wrong, from 0 to 1."""

    transient: float = 0.0
    """Records that fail once to three times in a step."""
    poison: float = 0.0
    hang: float = 0.0
    """First attempts that run into the time-out."""
    retry_after: float = 0.0
    filtered: float = 0.0
    commit_refused: float = 0.0
    commit_timed_out: float = 0.0
    commit_answer_lost: float = 0.0
    """Stored, and the member is told that it timed out."""
    acknowledgement_slow: float = 0.0
    start_refused: float = 0.0
    """Tasks that the engine gives back without having begun their call."""
    metadata_damaged: float = 0.0
    """Commit metadata that is not what was stored."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run."""

    seed: int
    policy: PlanePolicy
    members: int = 1
    partitions: int = 1
    records: int = 100
    """Per partition."""
    keys: int = 10
    keys_in_turn: bool = False
    """Whether keys come one after another, each in one partition, and not by chance."""
    failing_key: bytes | None = None
    """Its first record fails for ever: the run is over when everything else is settled."""
    null_keys: float = 0.0
    holes: float = 0.0
    rekeyed: bool = False
    """Whether the ordering key is another than the record's own."""
    appended_s: float = 0.0
    """Over how long the second half of the records is written; the first is there from the start."""
    writes: bool = False
    handler_s: tuple[float, float] = (0.001, 0.02)
    timeout_s: float = 0.3
    latency_s: float = 0.002
    """Between the plane and the threads around it, at the most."""
    late_s: float = 0.0
    """How long the report on a cancelled call may take."""
    stubborn: bool = False
    """Whether calls ignore their cancellation. Only with one member: elsewhere a call would overlap its successor's."""
    grace_s: float = 0.5
    fetch_records_max: int = 50
    faults: Faults = field(default_factory=Faults)
    troubles: tuple[Trouble, ...] = ()
    check_every: int = 1
    """Assert the invariants after so many steps."""
    time_s_max: float = 600.0
    actions_max: int = 200_000

    def __str__(self) -> str:
        kinds = ",".join(trouble.kind.value for trouble in self.troubles) or "no trouble"
        return (
            f"{self.members} members, {self.partitions} partitions of {self.records}, {self.keys} keys,"
            f" {len(self.policy.steps)} steps, {kinds}"
        )


def draw(seed: int) -> Scenario:
    """Draw a scenario; the same number gives the same one."""
    random = Random(seed)
    members, partitions = random.randint(1, 3), random.randint(1, 4)
    records = random.randint(12, 90) // partitions
    faults = _draw_faults(random)
    return Scenario(
        seed=seed,
        policy=_draw_policy(random, seed),
        members=members,
        partitions=partitions,
        records=records,
        keys=random.choice([1, 3, 10, 40]),
        null_keys=random.choice([0.0, 0.0, 0.2]),
        holes=random.choice([0.0, 0.1, 0.6]),
        rekeyed=random.random() < 0.1,
        appended_s=random.choice([0.0, 0.0, 1.0]),
        writes=random.random() < 0.4,
        handler_s=random.choice([(0.0, 0.0), (0.001, 0.01), (0.001, 0.1), (0.0, 0.4)]),
        latency_s=random.choice([0.0, 0.002, 0.02]),
        late_s=random.choice([0.0, 0.05, 1.0]),
        stubborn=members == 1 and random.random() < 0.5,
        grace_s=random.choice([0.0, 0.05, 0.5]),
        fetch_records_max=random.choice([1, 7, 50]),
        faults=faults,
        troubles=_draw_troubles(random, members, partitions),
    )


def _draw_faults(random: Random) -> Faults:
    def sometimes(share: float) -> float:
        return share if random.random() < 0.3 else 0.0

    return Faults(
        transient=sometimes(0.1),
        poison=sometimes(0.03),
        hang=sometimes(0.03),
        retry_after=sometimes(0.05),
        filtered=sometimes(0.2),
        commit_refused=sometimes(0.3),
        commit_timed_out=sometimes(0.3),
        commit_answer_lost=sometimes(0.3),
        acknowledgement_slow=sometimes(0.1),
        start_refused=sometimes(0.1),
        metadata_damaged=sometimes(0.5),
    )


def _draw_policy(random: Random, seed: int) -> PlanePolicy:
    retry = Retry(attempts=random.choice([4, 8, None]), initial_s=random.choice([0.0, 0.05, 0.1]), max_s=0.5)
    breaker = Breaker(
        enabled=random.random() < 0.5, calls_min=5, keys_min=2, window_s=1.0, probe_s=0.1, probe_s_max=1.0
    )
    names = ("fetch", "charge", "notify")[: random.choice([1, 1, 2, 3])]
    return PlanePolicy(
        steps=tuple(StepPolicy(name, random.choice([1, 3, 256]), retry, breaker) for name in names),
        ordering=random.choice([Ordering.KEY] * 8 + [Ordering.PARTITION, Ordering.NONE]),
        null_key_ordered=random.random() < 0.2,
        commit=Commit(random.choice([0.05, 0.3, 5.0]), random.choice([1, 20, 1000]), random.choice([0.0, 0.1])),
        gate=Gate(records_max=random.choice([8, 40, 50_000])),
        dead_letters=DeadLetters("letters", ratio_max=1.0, run_max=100_000),
        carryover=random.random() < 0.8,
        jitter_seed=seed,
    )


def _draw_troubles(random: Random, members: int, partitions: int) -> tuple[Trouble, ...]:
    weights = {
        TroubleKind.CRASH: 3,
        TroubleKind.STOP: 2,
        TroubleKind.MOVE: 5,
        TroubleKind.EVICT: 2,
        TroubleKind.FREEZE: 1 if members > 1 else 0,
    }
    kinds = random.choices(list(weights), list(weights.values()), k=random.choice([0, 1, 2, 4, 8]))
    span = random.choice([0.1, 0.5, 2.0])
    return tuple(
        sorted(
            (
                Trouble(
                    at=random.uniform(0, span),
                    kind=kind,
                    target=random.randrange(partitions if kind is TroubleKind.MOVE else members),
                    to=random.randrange(members),
                )
                for kind in kinds
            ),
            key=lambda trouble: trouble.at,
        )
    )
