"""Pipelines as plain values: what a test wants to run, in this process or in another one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import contract_handlers

from anabranch import Breaker, Commit, Gate, Pipeline, Retry
from anabranch.runtime import run as runtime
from anabranch.testing.history import HistoryWriter

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch.core.history import Recorder
    from anabranch.runtime.run import Run

QUICK_RETRY: dict[str, Any] = {"attempts": None, "initial_s": 0.02, "max_s": 0.05, "jitter": 0.0}
QUICK_COMMIT: dict[str, Any] = {"interval_s": 0.1, "min_interval_s": 0.02}
NO_BREAKER: dict[str, Any] = {"enabled": False}
QUICK_CLIENT: dict[str, str] = {
    "heartbeat.interval.ms": "100",
    "topic.metadata.refresh.interval.ms": "1000",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "200",
    "fetch.wait.max.ms": "50",
}


@dataclass(frozen=True)
class Step:
    """One `process` step, by the name of its handler in `contract_handlers`."""

    handler: str = "obey"
    concurrency: int = 64
    timeout_s: float | None = None
    retry: dict[str, Any] = field(default_factory=lambda: dict(QUICK_RETRY))
    breaker: dict[str, Any] = field(default_factory=lambda: dict(NO_BREAKER))


@dataclass(frozen=True)
class Shape:
    """A pipeline."""

    group: str
    topic: str
    steps: tuple[Step, ...] = (Step(),)
    start: str = "committed"
    filter: str | None = None
    write: str | None = None
    dead_letters: dict[str, Any] | None = None
    """The arguments of `dead_letters`, `topic` among them."""
    commit: dict[str, Any] = field(default_factory=lambda: dict(QUICK_COMMIT))
    gate: dict[str, Any] = field(default_factory=dict)
    ordering: str = "key"
    ordering_key: str | None = None
    """The name of a function in `contract_handlers`."""
    null_key: str | None = None
    carryover: bool = True


@dataclass(frozen=True)
class Launch:
    """A pipeline with how one member runs it."""

    shape: Shape
    engine: str
    bootstrap: str
    member: str
    history: str
    state_dir: str
    until: str | None = None
    drain_s: float = 10.0
    grace_s: float = 2.0
    session_timeout_s: float = 3.0
    reach_s: float = 10.0
    kafka: dict[str, str] = field(default_factory=lambda: dict(QUICK_CLIENT))
    spark: dict[str, Any] = field(default_factory=dict)
    """Options that Spark alone has: members, master, conf."""

    def write_to(self, path: Path) -> None:
        """Store it for another process."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def options(self) -> dict[str, Any]:
        """Answer the options of `start` and `run`, but for the recorder."""
        own = self.spark if self.engine == "spark" else {"member": self.member}
        return {
            **own,
            "engine": self.engine,
            "bootstrap": self.bootstrap,
            "state_dir": self.state_dir,
            "until": self.until,
            "drain_s": self.drain_s,
            "grace_s": self.grace_s,
            "session_timeout_s": self.session_timeout_s,
            "reach_s": self.reach_s,
            "kafka": self.kafka,
        }


def read_launch(path: Path) -> Launch:
    """Read what another process stored."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    shape = fields.pop("shape")
    steps = tuple(Step(**step) for step in shape.pop("steps"))
    return Launch(shape=Shape(steps=steps, **shape), **fields)


def build(shape: Shape) -> Pipeline[Any]:
    """Build the pipeline with the public builder."""
    options: dict[str, Any] = {"commit": Commit(**shape.commit), "gate": Gate(**shape.gate)}
    read: dict[str, Any] = {"start": shape.start, "ordering": shape.ordering}
    if shape.null_key is not None:
        read["null_key"] = shape.null_key
    if shape.ordering_key is not None:
        read["key"] = getattr(contract_handlers, shape.ordering_key)
    pipeline: Pipeline[Any] = Pipeline(shape.group, **options).read(shape.topic, bytes, **read)
    if shape.filter is not None:
        pipeline = pipeline.filter(getattr(contract_handlers, shape.filter))
    for step in shape.steps:
        pipeline = pipeline.process(
            getattr(contract_handlers, step.handler),
            concurrency=step.concurrency,
            timeout_s=step.timeout_s,
            retry=Retry(**step.retry),
            breaker=Breaker(**step.breaker),
        )
    if shape.write is not None:
        pipeline = pipeline.write(shape.write)
    if shape.dead_letters is not None:
        pipeline = pipeline.dead_letters(**shape.dead_letters)
    return pipeline


def recorder_of(launch: Launch) -> Any:
    """Answer what the run of a launch records with; on Spark, what makes a recorder in each of its members.

    A run is one member of a test, so there the events have its name, and the files those of the members. The function
    and the class are made here, so that they travel by value: a Python worker cannot import this module yet.
    """
    if launch.engine != "spark":
        return HistoryWriter(launch.history, launch.member)
    folder, name = launch.history, launch.member

    def make(member: str) -> Recorder:
        class Renaming(HistoryWriter):
            def record(self, events: Any) -> None:
                super().record([event._replace(member=name) for event in events])

        return Renaming(folder, member)

    return make


def start(launch: Launch, recorder: Any) -> Run:
    """Start a member on a thread of its own."""
    pipeline = build(launch.shape)
    if launch.shape.carryover:
        return pipeline.start(recorder=recorder, **launch.options())
    return runtime.start(without_carryover(pipeline), recorder=recorder, **launch.options())


def run(launch: Launch, recorder: Any) -> int:
    """Run a member as a program does, with signals, and answer its exit code."""
    pipeline = build(launch.shape)
    if launch.shape.carryover:
        return pipeline.run(recorder=recorder, **launch.options())
    return runtime.run(without_carryover(pipeline), recorder=recorder, **launch.options())


def without_carryover(pipeline: Pipeline[Any]) -> Any:
    """Answer a plan whose commits say nothing but the position; there is no public option for that."""
    plan = pipeline.plan()
    return replace(plan, policy=replace(plan.policy, carryover=False))
