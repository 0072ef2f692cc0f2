"""C9: what a commit's metadata says is believed only if it fits; what does not fit costs repeats, never a record."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from contract_pipelines import Step
from contract_world import Given, eventually

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World

pytestmark = pytest.mark.promise("C9")

KEYS = 10
RECORDS = 60
SLOW_RETRY = {"attempts": None, "initial_s": 0.3, "max_s": 0.3}
METADATA_CHARACTERS_MAX = 4096


def leave_a_carryover(runner: Runner, world: World, partitions: int = 1) -> str:
    """Handle all but the first record of each partition, which fails, and stop: commits at 0 say what is settled."""
    release = str(world.flag("release"))
    for partition in range(partitions):
        world.send([Given(b"stuck-%d" % partition, {"fail_until": release}, partition)])
        world.send([Given(b"key-%d-%d" % (partition, n % KEYS), {}, partition) for n in range(RECORDS)])
    member = runner.start(runner.shape(steps=(Step(retry=SLOW_RETRY),)), member="before", drain_s=0.5)
    eventually(lambda: len(world.settled()) == partitions * RECORDS, "all but the stuck records are settled")
    member.stop()
    assert member.wait() in {0, 5}, member.said()
    assert all(position == 0 for position in world.positions().values())
    assert all(metadata for _, metadata in world.committed().values()), "nothing is carried over"
    world.flag("release").touch()
    return world.committed()[0][1]


def test_c9_what_fits_is_believed(engine_runner: Runner, world: World) -> None:
    """The next owner handles the one record that was left, and nothing twice."""
    world.create()
    leave_a_carryover(engine_runner, world)
    engine_runner.run(member="after")
    world.accepts(records=RECORDS + 1, duplicates_max=0)


FORGERIES = {
    "empty": lambda _: "",
    "garbage": lambda _: "not ours at all \N{SNOWMAN}",
    "of another version": lambda genuine: genuine.replace(":1:", ":9:"),
    "truncated": lambda genuine: genuine[: len(genuine) // 2],
    "cut by one": lambda genuine: genuine[:-1],
    "longer": lambda genuine: genuine + "A",
    "twice": lambda genuine: genuine + genuine,
    "of the JVM Parallel Consumer": lambda _: "bAAAAAAAAAAAAAAAAAAAAAAAAAA=",
}


def test_c9_metadata_that_does_not_fit_is_not_believed(engine_runner: Runner, world: World) -> None:
    """Fault 4. Forged, truncated or foreign metadata, one kind in each partition: every record from the position on is
    handled, none is skipped; in the one partition where it was left alone, nothing is repeated.
    """
    world.create(partitions=len(FORGERIES) + 1)
    leave_a_carryover(engine_runner, world, len(FORGERIES) + 1)
    for partition, forge in enumerate(FORGERIES.values(), start=1):
        world.commit(0, forge(world.committed()[partition][1]), partition)
    engine_runner.run(member="after")
    repeated = Counter(partition for (partition, _), times in world.settled().items() if times > 1)
    assert repeated == dict.fromkeys(range(1, len(FORGERIES) + 1), RECORDS)
    assert world.positions() == dict.fromkeys(range(len(FORGERIES) + 1), RECORDS + 1)
    world.accepts(records=(len(FORGERIES) + 1) * (RECORDS + 1))


def test_c9_a_carryover_is_worth_nothing_at_another_position(engine_runner: Runner, world: World) -> None:
    """Someone set the group's position and left the metadata: what it says about offsets below does no harm, and no
    record at or above the position that was not settled is skipped.
    """
    world.create()
    genuine = leave_a_carryover(engine_runner, world)
    new = world.send([Given(b"key-%d" % number) for number in range(KEYS)])
    world.commit(RECORDS - 5, genuine)
    engine_runner.run(member="after")
    assert all(world.settled()[0, offset] >= 1 for offset in new)
    assert world.positions() == {0: RECORDS + 1 + KEYS}


def test_c9_a_topic_made_again_under_the_same_name_owes_nothing_to_the_old_one(
    engine_runner: Runner, world: World
) -> None:
    """Fault 5. The topic is deleted and created again; the group's old carryover would mark new records as done."""
    world.create()
    genuine = leave_a_carryover(engine_runner, world)
    world.admin.delete_topics([world.topic])[world.topic].result(20)
    eventually(lambda: world.topic not in world.admin.list_topics(timeout=10).topics, "the topic is gone")
    world.create()
    world.commit(0, genuine)
    before = sum(world.settled().values())
    world.sequences.clear()
    offsets = world.send([Given(b"new-%d" % (number % KEYS)) for number in range(RECORDS)], topic=world.topic)
    engine_runner.run(member="after")
    assert sum(world.settled().values()) - before == len(offsets)


def test_c9_too_much_to_carry_degrades_to_repeats(engine_runner: Runner, world: World) -> None:
    """Fault 4. Random gaps over 30,000 offsets do not fit into metadata: the commit is accepted all the same, and after
    a restart the records are handled: some again, none left out.
    """
    world.create()
    release = world.flag("release")
    chance = random.Random(4)
    stuck = {"fail_until": str(release)}
    records = [Given(b"stuck", stuck)]
    records += [Given(b"s", stuck) if chance.random() < 0.5 else Given(b"key-%d" % (n % 50)) for n in range(30_000)]
    world.send(records)
    passing = sum(1 for given in records if given.value == {})
    shape = engine_runner.shape(steps=(Step(retry=SLOW_RETRY),))
    member = engine_runner.start(shape, member="before", drain_s=0.5)
    eventually(lambda: member.statistics().get("settled", 0) >= passing, "all but the stuck keys are settled", 60)
    member.stop()
    assert member.wait() in {0, 5}, member.said()
    position, metadata = world.committed()[0]
    assert position == 0
    assert 0 < len(metadata) <= METADATA_CHARACTERS_MAX
    release.touch()
    engine_runner.run(shape, member="after")
    verdict = world.accepts(records=30_001)
    assert 0 < verdict["duplicated"].count < passing
