"""What a run is given, checked before anything is opened or joined."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from anabranch.core.errors import UsageError
from anabranch.core.history import NullRecorder
from anabranch.core.run_options import UNTIL_END, RunOptions, parse_until
from anabranch.engine.aio import AsyncEngine
from anabranch.engine.inline import InlineEngine
from anabranch.kafka.settings import SinkSettings, SourceSettings
from anabranch.runtime.status import FOLDER_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anabranch.core.history import Recorder
    from anabranch.engine.port import Engine
    from anabranch.kafka.settings import BeyondEnd, Lost
    from anabranch.pipeline.plan import Plan

ENGINES: Final[Mapping[str, Callable[..., Engine]]] = {"async": AsyncEngine, "inline": InlineEngine}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The options of `start`; see there."""

    engine: str
    source: SourceSettings
    sink: SinkSettings
    until: str | datetime | None
    state_dir: Path
    recorder: Recorder
    member: str
    may_start: Callable[[], bool] | None
    drain_s: float
    serves_status: bool = True


@dataclass(frozen=True, slots=True)
class Given:
    """The options as they were given."""

    engine: str = "async"
    bootstrap: str = "127.0.0.1:9092"
    kafka: Mapping[str, Any] | None = None
    until: str | datetime | None = None
    state_dir: str | os.PathLike[str] | None = None
    recorder: Recorder | None = None
    member: str | None = None
    may_start: Callable[[], bool] | None = None
    drain_s: float = 30.0
    grace_s: float = 5.0
    session_timeout_s: float = 10.0
    reach_s: float = 10.0
    on_lost_to_retention: str = "go on"
    on_beyond_end: str = "halt"
    serves_status: bool = True
    leave_static: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict)


def checked(plan: Plan, given: Given) -> RunSettings:
    """Return the settings of a run; raise UsageError for what cannot be right."""
    if given.unknown:
        known = ", ".join(each for each in Given.__dataclass_fields__ if each != "unknown")
        raise UsageError(f"run: unknown option {next(iter(given.unknown))!r}; known are {known}")
    if given.engine not in ENGINES:
        raise UsageError(f"engine {given.engine!r} does not run here: use {' or '.join(map(repr, ENGINES))}")
    if plan.spark_only:
        raise UsageError(
            f"step {plan.spark_only[0]!r} runs on Spark only, and the engine is {given.engine}: leave the step out, "
            "or run(engine='spark')"
        )
    RunOptions(
        drain_s=given.drain_s,
        grace_s=given.grace_s,
        session_timeout_s=given.session_timeout_s,
        reach_s=given.reach_s,
        on_lost_to_retention=given.on_lost_to_retention,
        on_beyond_end=given.on_beyond_end,
    )
    state_dir = Path(given.state_dir) if given.state_dir else Path(FOLDER_DEFAULT) / plan.name
    member = given.member or f"{plan.name}-{os.getpid()}"
    kafka = {name: _text(value) for name, value in (given.kafka or {}).items()}
    return RunSettings(
        engine=given.engine,
        source=_source_settings(plan, given, member, kafka),
        sink=_sink_settings(plan, given, member, kafka),
        until=_until(given.until),
        state_dir=state_dir,
        recorder=given.recorder or NullRecorder(),
        member=member,
        may_start=given.may_start,
        drain_s=given.drain_s,
        serves_status=given.serves_status,
    )


def _source_settings(plan: Plan, given: Given, member: str, kafka: Mapping[str, str]) -> SourceSettings:
    return SourceSettings(
        bootstrap=given.bootstrap,
        extra=kafka,
        client_id=member,
        grace_s=given.grace_s,
        session_timeout_s=given.session_timeout_s,
        records_max=plan.policy.gate.records_max,
        bytes_max=plan.policy.gate.bytes_max,
        reach_s=given.reach_s,
        on_lost_to_retention=cast("Lost", given.on_lost_to_retention),
        on_beyond_end=cast("BeyondEnd", given.on_beyond_end),
        leave_static=given.leave_static,
    )


def _sink_settings(plan: Plan, given: Given, member: str, kafka: Mapping[str, str]) -> SinkSettings:
    letters = plan.policy.dead_letters
    return SinkSettings(
        bootstrap=given.bootstrap,
        extra=kafka,
        client_id=member,
        topic=plan.sink_topic,
        dead_letter_topic=None if letters is None else letters.topic,
        source_topics=plan.read.topics,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _until(given: str | datetime | None) -> str | datetime | None:
    until = parse_until(given) if isinstance(given, str) else given
    if until is None or until == UNTIL_END:
        return until
    if not isinstance(until, datetime):
        raise UsageError(f"until: given {given!r}, allowed is 'end', a datetime, or a text such as 2026-07-01T12:00Z")
    if until.tzinfo is None:
        raise UsageError(f"until: given {given!r} without a time zone; add one, as in datetime(…, tzinfo=UTC)")
    if until > datetime.now(UTC):
        raise UsageError(
            f"until: {until.isoformat()} lies in the future; leave it out and stop the run when it is time"
        )
    return until
