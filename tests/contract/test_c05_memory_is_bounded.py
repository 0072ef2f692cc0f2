"""C5: what is held is bounded by count and by bytes; at the bound a partition is paused, with hysteresis, by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from contract_pipelines import Step
from contract_world import Given, eventually

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World

pytestmark = pytest.mark.promise("C5")


def held(statistics: dict[str, Any]) -> int:
    """Answer how many records the plane holds, of all partitions."""
    return sum(partition["incomplete"] for partition in statistics["partitions"].values())


def held_bytes(statistics: dict[str, Any]) -> int:
    """Answer how many bytes the plane holds, of all partitions."""
    return sum(partition["bytes"] for partition in statistics["partitions"].values())


def closed(statistics: dict[str, Any]) -> list[str]:
    """Answer the partitions that are paused."""
    return [name for name, partition in statistics["partitions"].items() if partition["gate"] == "closed"]


def test_c5_the_number_of_records_held_is_bounded(engine_runner: Runner, world: World) -> None:
    """6,000 records of keys that all fail: fetching stops at the bound of 1,000 and says why; then all is handled."""
    world.create(partitions=2)
    release = world.flag("release")
    script = {"fail_until": str(release)}
    world.send([Given(b"key-%d" % (number % 50), script, number % 2) for number in range(6000)])
    shape = engine_runner.shape(gate={"records_max": 1000}, steps=(Step(retry=SLOW_RETRY),))
    member = engine_runner.start(shape, until="end", members=1)
    eventually(lambda: len(closed(member.statistics())) == 2, "both partitions are paused")
    most = 0
    for _ in range(5):
        calls = sum(world.begun().values())
        eventually(lambda calls=calls: sum(world.begun().values()) > calls + 20, "the failing keys are tried again")
        most = max(most, held(member.statistics()))
    assert most <= 1000, f"{most} records are held"
    assert world.topic in " ".join(member.statistics()["why"])
    release.touch()
    assert member.wait() == 0
    world.accepts(records=6000, duplicates_max=0)


SLOW_RETRY = {"attempts": None, "initial_s": 0.3, "max_s": 0.3, "jitter": 0.5}


def test_c5_the_bytes_held_are_bounded(engine_runner: Runner, world: World) -> None:
    """16 MB of records that all fail against a bound of 2 MB, which one record of each partition may pass."""
    world.create(partitions=2)
    release = world.flag("release")
    script = {"fail_until": str(release), "padding": "x" * 20_000}
    world.send([Given(b"key-%d" % (number % 50), script, number % 2) for number in range(800)])
    shape = engine_runner.shape(gate={"bytes_max": 2_000_000}, steps=(Step(retry=SLOW_RETRY),))
    member = engine_runner.start(shape, until="end", members=1)
    eventually(lambda: len(closed(member.statistics())) == 2, "both partitions are paused")
    assert held_bytes(member.statistics()) <= 2_000_000 + 2 * 22_000
    release.touch()
    assert member.wait() == 0
    world.accepts(records=800, duplicates_max=0)


def test_c5_a_full_partition_does_not_stop_the_others(engine_runner: Runner, world: World) -> None:
    """Partition 0 is full of records that fail; partition 1 goes on through many times its share of the bound."""
    world.create(partitions=2)
    release = world.flag("release")
    stuck = [Given(b"key-%d" % (number % 50), {"fail_until": str(release)}, 0) for number in range(3000)]
    world.send([*stuck, *(Given(b"key-%d" % (number % 50), {}, 1) for number in range(3000))])
    shape = engine_runner.shape(gate={"records_max": 500}, steps=(Step(retry=SLOW_RETRY),))
    member = engine_runner.start(shape, until="end", members=1)
    eventually(lambda: sum(partition for partition, _ in world.settled()) == 3000, "partition 1 is done")
    assert not any(partition == 0 for partition, _ in world.settled())
    eventually(lambda: closed(member.statistics()) == [f"{world.topic}/0"], "partition 0 alone is paused")
    release.touch()
    assert member.wait() == 0
    world.accepts(records=6000, duplicates_max=0)
