"""C10: offsets without a record never stall anything and never skip a record that exists.

Markers, aborted records and compaction need a broker that has them: `tests/kafka` shows them on Apache Kafka, and the
scripted source in `make test`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract_world import Given, eventually

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import World

pytestmark = pytest.mark.promise("C10")


def settled_offsets(world: World, partition: int = 0) -> list[int]:
    """Answer the settled offsets of one partition."""
    return sorted(offset for number, offset in world.settled() if number == partition)


def test_c10_a_log_that_begins_late_is_read_from_its_start(engine_runner: Runner, world: World) -> None:
    """Fault 1. The log starts at 30: no stall before it, and nothing is called lost that the group never had."""
    world.create()
    world.send([Given(b"key-%d" % (number % 5)) for number in range(50)])
    world.delete_records_below(30)
    engine_runner.run()
    assert settled_offsets(world) == list(range(30, 50))
    assert world.positions() == {0: 50}
    world.accepts(records=20, duplicates_max=0, starts={(world.topic, 0): 30})


def test_c10_a_log_that_lost_all_its_records_is_no_stall(engine_runner: Runner, world: World) -> None:
    """Everything was deleted: the run to the end ends at once, and new records are handled."""
    world.create()
    world.send([Given(b"a") for _ in range(10)])
    world.delete_records_below(10)
    engine_runner.run()
    assert world.settled() == {}
    world.send([Given(b"a")])
    engine_runner.run(member="b")
    assert settled_offsets(world) == [10]


def test_c10_an_empty_topic_is_done_at_once(engine_runner: Runner, world: World) -> None:
    """Nothing to do until the end of nothing."""
    world.create(partitions=3)
    engine_runner.run()
    assert world.settled() == {}


def test_c10_latest_on_a_full_topic_handles_what_comes_after(engine_runner: Runner, world: World) -> None:
    """Fault 1. `latest` begins at an offset above 0: commits move from there."""
    world.create(partitions=2)
    world.send([Given(b"key-%d" % (number % 5), {}, number % 5 % 2) for number in range(40)])
    ends = world.ends()
    member = engine_runner.start(engine_runner.shape(start="latest"))
    eventually(lambda: world.positions() == ends, "the start is committed before any record runs")
    world.send([Given(b"key-%d" % (number % 5), {}, number % 5 % 2) for number in range(10)])
    eventually(lambda: world.positions() == world.ends(), "what came after is handled and committed")
    member.stop()
    assert member.wait() == 0
    assert len(world.settled()) == 10
    world.accepts(records=10, duplicates_max=0, starts={(world.topic, number): end for number, end in ends.items()})


def test_c10_what_comes_between_latest_and_a_crash_is_handled(engine_runner: Runner, world: World) -> None:
    """Fault 5. A member that starts at `latest` is killed before it commits any progress; records that came meanwhile
    are not skipped by the next one, which would start at `latest` too.
    """
    world.create()
    world.send([Given(b"a") for _ in range(10)])
    never = world.flag("never")
    member = engine_runner.start_process(engine_runner.shape(start="latest"), session_timeout_s=1.5)
    eventually(lambda: world.positions() == {0: 10}, "the start is committed")
    world.send([Given(b"a", {"fail_until": str(never)}), Given(b"a")])
    eventually(world.begun, "a record was begun")
    member.kill()
    world.send([Given(b"a")])
    never.touch()
    engine_runner.run(engine_runner.shape(start="latest"), member="b")
    assert settled_offsets(world) == [10, 11, 12]
    world.accepts(records=3, starts={(world.topic, 0): 10}, killed={member.pid: member.killed_ns})


def test_c10_a_partition_added_under_latest_is_read_from_its_beginning(engine_runner: Runner, world: World) -> None:
    """Fault 5 (KIP-842). What is written to a new partition before the member learns of it is not skipped."""
    world.create()
    world.send([Given(b"a") for _ in range(5)])
    shape = engine_runner.shape(start="latest")
    member = engine_runner.start(shape)
    eventually(lambda: world.positions() == {0: 5}, "the start is committed")
    world.add_partitions(2)
    eventually(lambda: len(world.admin.list_topics(world.topic, timeout=10).topics[world.topic].partitions) == 2, "2")
    world.send([Given(b"b", {}, 1) for _ in range(7)])
    eventually(lambda: settled_offsets(world, 1) == list(range(7)), "the new partition is read from its beginning")
    member.stop()
    assert member.wait() == 0
    assert settled_offsets(world, 0) == []


def test_c10_retention_that_passes_the_reader_is_no_stall(engine_runner: Runner, world: World) -> None:
    """Fault 1. Records ahead of a stuck reader are deleted under it: what is left is handled, and commits go on."""
    world.create()
    release = world.flag("release")
    padding = "x" * 2000
    world.send([Given(b"a", {"fail_until": str(release)})])
    world.send([Given(b"a", {"padding": padding}) for number in range(2000)])
    shape = engine_runner.shape(gate={"records_max": 100, "bytes_max": 200_000})
    member = engine_runner.start(shape)
    eventually(world.begun, "the reader is stuck at its first record")
    world.delete_records_below(1990)
    release.touch()
    eventually(lambda: world.positions() == {0: 2001}, "the end is committed")
    member.stop()
    assert member.wait() == 0
    settled = settled_offsets(world)
    assert settled[-11:] == list(range(1990, 2001))
    gone = 2001 - len(settled)
    assert member.statistics()["lost_to_retention"] == gone
