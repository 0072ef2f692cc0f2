"""A member on a scripted source: the runtime's own joint, plane and engine over a log that is a list.

For what the embedded broker does not have: markers, aborted records, compaction. There is no Kafka, so there is no sink
either: pipelines here write nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from contract_pipelines import Shape, build

from anabranch.control.events import Stop
from anabranch.control.plane import Plane
from anabranch.core.history import Sent
from anabranch.runtime.joint import Joint, Parts
from anabranch.runtime.settings import ENGINES, Given, checked
from anabranch.testing.history import HistoryWriter
from anabranch.testing.scripted_source import ScriptedLog, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from contract_world import World

    from anabranch.control.policy import PlanePolicy
    from anabranch.core.work import TopicPartition
    from anabranch.pipeline.plan import Plan
    from anabranch.testing.script import Step

LOOK_S = 0.005
STOP_S = 10.0


def honest(policy: PlanePolicy, member: str) -> Plane:
    """Make the plane that runs are made with."""
    return Plane(policy, member=member, reports_settled=True)


def play(
    world: World,
    engine: str,
    script: Sequence[Step],
    log: ScriptedLog,
    *,
    member: str = "a",
    make_plane: Callable[[PlanePolicy, str], Plane] = honest,
) -> None:
    """Play a script to its end, then stop as a run does, or fall silent where it crashes."""
    with HistoryWriter(world.histories, member) as recorder:
        plan = build(Shape(world.group, world.topic)).plan()
        asyncio.run(_play(plan, make_plane(plan.policy, member), engine, script, log, recorder))


def record_sent(world: World, log: ScriptedLog, partition: TopicPartition) -> int:
    """Tell the history which records the log holds; answer how many. The oracle knows no other holes."""
    records = log.partition(partition).records
    world.record_sent([Sent(*partition, offset, records[offset].key) for offset in sorted(records)])
    return len(records)


async def _play(
    plan: Plan, plane: Plane, engine: str, script: Sequence[Step], log: ScriptedLog, recorder: HistoryWriter
) -> None:
    loop = asyncio.get_running_loop()
    ended: list[Any] = []
    member = recorder.process.member
    settings = checked(plan, Given(engine=engine, recorder=recorder, member=member))
    joint = Joint(plan, settings, ended.append)
    runs: Any = ENGINES[engine](plan, joint.on_completed, recorder=recorder, member=member, fail=joint.fail)
    source: Any = ScriptedSource(script, lambda events: loop.call_soon_threadsafe(joint.on_source, events), log=log)
    nothing_is_written: Any = None
    joint.parts = Parts(plane, runs, source, nothing_is_written)
    runs.start(None)
    source.start()
    while not source.finished.is_set():
        await asyncio.sleep(LOOK_S)
    if not source.crashed:
        joint.step(Stop(time.monotonic() + STOP_S))
        await asyncio.wait_for(joint.stopped, STOP_S)
    joint.leave()
    runs.terminate()
    source.close()
    await asyncio.to_thread(source.join, STOP_S)
    assert not source.failure, source.failure
    assert not ended, ended
