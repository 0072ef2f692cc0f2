"""What a run tells about itself, as plain values: the plane's own at the top, those of its parts under their names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from anabranch.runtime.plain import plain

if TYPE_CHECKING:
    from anabranch.pipeline.plan import Plan
    from anabranch.runtime.joint import Parts
    from anabranch.runtime.settings import RunSettings


def unopened(plan: Plan, settings: RunSettings) -> dict[str, Any]:
    """Return the statistics of a run that has opened nothing yet."""
    return {
        "group": plan.name,
        "member": settings.member,
        "pid": os.getpid(),
        "engine_name": settings.engine,
        "state": "starting",
        "uptime_s": 0.0,
        "partitions": {},
        "steps": {},
        "engine": {},
        "source": {},
        "sink": {},
        **dict.fromkeys(("handled", "filtered", "dead", "settled", "retries", "running", "lost_to_retention"), 0),
        "why": [],
    }


def opened(parts: Parts) -> dict[str, Any]:
    """Return what the parts say: partitions by `topic/number`, steps by name."""
    plane = parts.plane.statistics()
    source = plain(parts.source.statistics())
    return {
        **plain(plane),
        "partitions": {f"{each.topic}/{each.partition}": plain(each) for each in plane.partitions},
        "steps": {each.name: plain(each) for each in plane.steps},
        "settled": plane.handled + plane.filtered + plane.dead,
        "engine": plain(parts.engine.statistics()),
        "source": source,
        "sink": plain(parts.sink.statistics()),
        "lost_to_retention": sum(source["lost_to_retention"].values()),
        "why": list(parts.plane.why()),
    }
