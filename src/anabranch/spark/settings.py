"""What a run on Spark is given, checked before anything is opened."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import UsageError
from anabranch.runtime.settings import Given, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from anabranch.core.history import Recorder
    from anabranch.pipeline.plan import Plan
    from anabranch.runtime.settings import RunSettings


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The options of `start`; see there."""

    run: RunSettings
    """What is the same on every engine."""
    member_options: Mapping[str, Any]
    """What members pass on to `runtime.run.start`."""
    recorder: Callable[[str], Recorder] | None
    master: str | None
    members: int | None
    conf: Mapping[str, str]
    spark: SparkSession | None
    token: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)


def spark_settings(
    plan: Plan,
    *,
    master: str | None,
    members: int | None,
    conf: Mapping[str, Any] | None,
    spark: SparkSession | None,
    recorder: Callable[[str], Recorder] | None,
    options: Mapping[str, Any],
) -> SparkSettings:
    """Return the settings of a run; raise UsageError for what cannot be right."""
    if members is not None and (isinstance(members, bool) or not isinstance(members, int) or members < 1):
        raise UsageError(f"members: given {members!r}, allowed is a whole number from 1 on")
    if recorder is not None and not callable(recorder):
        raise UsageError(
            "recorder: members are other processes; give a function that makes the recorder of a member from its name, "
            "such as functools.partial(HistoryWriter, folder)"
        )
    known = Given.__dataclass_fields__.keys() - {
        "engine",
        "recorder",
        "member",
        "may_start",
        "serves_status",
        "leave_static",
        "unknown",
    }
    for name in options:
        if name not in known:
            more = sorted({*known, "master", "members", "conf", "spark", "recorder"})
            raise UsageError(f"run: unknown option {name!r}; known on Spark are {', '.join(more)}")
    if "group.instance.id" in (options.get("kafka") or {}):
        raise UsageError(
            "kafka setting group.instance.id cannot be set on Spark: each member has its own; leave it out"
        )
    return SparkSettings(
        run=checked(plan.without_queries(), Given(**options)),
        member_options={name: value for name, value in options.items() if name not in {"until", "state_dir"}},
        recorder=recorder,
        master=master,
        members=members,
        conf={name: _text(value) for name, value in (conf or {}).items()},
        spark=spark,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
