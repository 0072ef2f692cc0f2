"""Stop at any moment and continue: the carryover saves the work that was done ahead."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from contract_pipelines import Step
from contract_world import Given, World, eventually

from anabranch.core.history import Committed, Settled

if TYPE_CHECKING:
    from contract_runner import Runner

pytestmark = pytest.mark.promise("C9")

RECORDS = 600
STEP = Step(concurrency=8, retry={"attempts": None, "initial_s": 0.2, "max_s": 0.2})


@pytest.mark.parametrize("how", ["stop", "kill -9"])
def test_the_carryover_saves_the_work_done_ahead_of_a_stuck_key(engine_runner: Runner, world: World, how: str) -> None:
    """One key is stuck at the beginning, others are done ahead of it, the member ends in the middle of its work, the
    next one goes on.

    After a stop nothing is repeated; after kill -9 only what was settled since the last commit. Without a carryover all
    of it is repeated. The numbers are printed.
    """
    ahead, repeated, uncommitted = end_in_the_middle(engine_runner, world, how, carryover=True)
    other = World(world.bootstrap, world.folder / "without", broker=world.broker)
    other.folder.mkdir()
    engine_runner.world = other
    all_of, without, _ = end_in_the_middle(engine_runner, other, how, carryover=False)
    told = f"{repeated} of {ahead} done ahead repeated with the carryover, {without} of {all_of} without"
    sys.stdout.write(f"{engine_runner.engine}, {how}: {told}\n")
    assert repeated <= (0 if how == "stop" else uncommitted)
    assert without == all_of


def end_in_the_middle(runner: Runner, world: World, how: str, *, carryover: bool) -> tuple[int, int, int]:
    """End a member in the middle, run the rest; answer how much was done ahead, done twice, and not yet committed."""
    world.create()
    stuck = Given(b"stuck", {"fail_until": str(world.flag("release"))})
    world.send([stuck, *(Given(b"key-%d" % (number % 50), {"sleep_s": 0.001}) for number in range(RECORDS))])
    shape = runner.shape(steps=(STEP,), carryover=carryover)
    member = runner.start_process(shape, member="before", drain_s=0.5, session_timeout_s=1.5)
    eventually(lambda: len(world.settled()) > RECORDS // 2, "half of the records are done")
    if how == "stop":
        member.stop()
        assert member.wait() in {0, 5}, member.said()
    else:
        member.kill()
    ahead = len(world.settled())
    uncommitted = settled_since_the_last_commit_but_one(world)
    world.flag("release").touch()
    runner.run(shape, member="after")
    verdict = world.accepts(records=RECORDS + 1, killed={member.pid: member.killed_ns} if member.killed_ns else None)
    world.close()
    return ahead, verdict["duplicated"].count, uncommitted


def settled_since_the_last_commit_but_one(world: World) -> int:
    """Answer what the last commit may not cover: it was sent after the one before it was answered."""
    history = world.history()
    commits = [place for place, event in enumerate(history) if isinstance(event, Committed)]
    since = commits[-2] if len(commits) > 1 else 0
    return sum(isinstance(event, Settled) for event in history[since:])
