"""C3: a failing record delays its own key; a waiting retry holds no slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract_pipelines import QUICK_RETRY, Step
from contract_world import Given, eventually

from anabranch.core.history import Begun

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World

pytestmark = pytest.mark.promise("C3")

LONG_RETRY = {**QUICK_RETRY, "initial_s": 0.2, "max_s": 0.2}


def with_a_stuck_key(world: World, others: int) -> list[Given]:
    """Make one key that fails until the flag `release` exists, and many that pass."""
    stuck = Given(b"stuck", {"fail_until": str(world.flag("release"))})
    passing = [Given(b"key-%d" % (number % 20)) for number in range(others)]
    return [stuck, *passing, Given(b"stuck")]


@pytest.mark.parametrize("concurrency", [1, 16])
def test_c3_a_key_that_fails_for_ever_delays_no_one_else(engine_runner: Runner, world: World, concurrency: int) -> None:
    """All other keys finish while one fails again and again, also when only one call may run at a time: the waiting
    retry holds no slot.
    """
    world.create()
    world.send(with_a_stuck_key(world, 200))
    shape = engine_runner.shape(steps=(Step(concurrency=concurrency, retry=LONG_RETRY),))
    member = engine_runner.start(shape, until="end")
    eventually(lambda: len(world.settled()) == 200, "all other keys are settled")
    begun = world.begun()
    assert begun[0, 201] == 0, "the stuck key's next record was begun"
    eventually(lambda: world.begun()[0, 0] >= 3, "the stuck record is tried again and again")
    world.flag("release").touch()
    assert member.wait() == 0
    world.accepts(records=202, duplicates_max=0)


def test_c3_the_blocker_is_named_by_why(engine_runner: Runner, world: World) -> None:
    """What holds the commit back is reported: the record, and that it waits for its next attempt."""
    world.create()
    world.send(with_a_stuck_key(world, 20))
    member = engine_runner.start(until="end")
    eventually(lambda: len(world.settled()) == 20, "all other keys are settled")
    eventually(lambda: world.topic in " ".join(member.statistics()["why"]), "why names the partition")
    world.flag("release").touch()
    assert member.wait() == 0


def test_c3_retry_after_is_honoured_and_delays_its_key_only(engine_runner: Runner, world: World) -> None:
    """`RetryAfter(0.5)` puts its record off; the other keys are done by then, its own next record waits."""
    world.create()
    world.send([Given(b"a", {"raise": "retry_after", "seconds": 0.5}), *(Given(b"b") for _ in range(20)), Given(b"a")])
    engine_runner.run()
    begun = [(event.offset, event.attempt) for event in world.events(Begun)]
    assert begun[-2:] == [(0, 2), (21, 1)]
    world.accepts(records=22, duplicates_max=0)


def test_c3_an_open_breaker_keeps_order_and_fills_no_dead_letters(engine_runner: Runner, world: World) -> None:
    """Fault 15. The other side is down for all keys: the step stops calling, and nothing dies of it."""
    world.create()
    letters = world.create(topic=f"{world.topic}-dead")
    release = world.flag("release")
    world.send([Given(b"key-%d" % (number % 10), {"fail_until": str(release)}) for number in range(60)])
    breaker = {"calls_min": 10, "keys_min": 5, "probe_s": 0.1, "probe_s_max": 0.1}
    step = Step(retry={**QUICK_RETRY, "attempts": 8}, breaker=breaker)
    shape = engine_runner.shape(steps=(step,), dead_letters={"topic": letters})
    member = engine_runner.start(shape, until="end")
    eventually(lambda: "breaker" in " ".join(member.statistics()["why"]), "why names the breaker")
    calls = sum(world.begun().values())
    eventually(lambda: sum(world.begun().values()) >= calls + 10, "it probes, more often than a record has attempts")
    release.touch()
    assert member.wait() == 0
    assert world.read(letters) == []
    world.accepts(records=60, duplicates_max=0, count_dead=True)
