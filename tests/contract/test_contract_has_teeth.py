"""The suite has teeth: a run that breaks a promise is found out, also when it tells a history that looks clean.

The planes with one fault each are those of the simulation; here they run under the real engines, in the runtime's own
joint, over a scripted log. What each of them is found out by is written beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from contract_scripted import play, record_sent
from contract_world import Given

from anabranch.control.plane import Plane
from anabranch.core.work import TopicPartition
from anabranch.testing.scripted_source import Await, Give, ScriptedLog, record

sys.path.append(str(Path(__file__).resolve().parent.parent / "simulation"))
from doctored_planes import (
    CommitsTheHighestSeen,
    ForgetsToReport,
    GivesEachRecordALaneOfItsOwn,
    LetsTheLaneGoOnWhileARetryWaits,
    TakesAFailureForSuccess,
    maker,
)

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World

    from anabranch.testing.oracle import Verdict

RECORDS = 30
ENGINES = ("inline", "async")
FOUND_OUT = (
    (CommitsTheHighestSeen, ENGINES, "committed_too_far"),
    (ForgetsToReport, ENGINES, "lost"),
    (GivesEachRecordALaneOfItsOwn, ENGINES, "reordered"),
    (GivesEachRecordALaneOfItsOwn, ("async",), "overlapping"),
    (LetsTheLaneGoOnWhileARetryWaits, ENGINES, "reordered"),
    (TakesAFailureForSuccess, ENGINES, "lost"),
)
CASES = [(plane, engine, checker) for plane, engines, checker in FOUND_OUT for engine in engines]


def played(world: World, engine: str, plane: type[Plane]) -> Verdict:
    """Run records of four keys, every third of which fails at first."""
    one, log = TopicPartition(world.topic, 0), ScriptedLog()
    values = [b'{"sleep_s": 0.002, "fail_times": %d}' % (2 * (number % 3 == 0)) for number in range(RECORDS)]
    records = [record(one, b"key-%d" % (number % 4), value) for number, value in enumerate(values)]
    play(world, engine, [Give(one), *records, Await(one, RECORDS)], log, make_plane=maker(plane))
    return world.verdict(records=record_sent(world, log, one))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_plane_that_we_ship_passes(world: World, engine: str) -> None:
    """The records that find the others out find nothing here."""
    verdict = played(world, engine, Plane)
    assert verdict.ok, verdict.report()


@pytest.mark.parametrize(("plane", "engine", "checker"), CASES)
def test_a_plane_with_a_fault_is_found_out(world: World, plane: type[Plane], engine: str, checker: str) -> None:
    """Each turns its rule red."""
    verdict = played(world, engine, plane)
    assert verdict[checker].count > 0, f"{plane.__doc__}\n{verdict.report()}"


def test_a_run_is_judged_by_the_keys_that_were_sent_and_not_by_those_it_tells(
    async_runner: Runner, world: World
) -> None:
    """A pipeline with an ordering key that orders nothing tells each record as a key of its own, and keeps what it
    tells. By the keys that were sent it passes records that fail, and the oracle says so.
    """
    world.create()
    world.send([Given(b"key-%d" % (number % 4), {"fail_times": number % 3}) for number in range(60)])
    async_runner.run(async_runner.shape(ordering_key="each_its_own"))
    verdict = world.verdict(records=60)
    assert verdict["reordered"].count > 0, verdict.report()
