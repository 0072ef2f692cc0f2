"""C2: the call for record n+1 of a key begins when n has really left the step; through retries, crashes, rebalances."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from contract_pipelines import QUICK_RETRY, Step
from contract_world import Given, eventually

from anabranch.core.history import Begun, Ended, Settled

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import Found, World

pytestmark = pytest.mark.promise("C2")

KEYS = 12


def keyed(count: int, partitions: int, **script: object) -> list[Given]:
    """Make records of a few keys, each key in one partition."""
    return [Given(b"key-%d" % (number % KEYS), script, number % KEYS % partitions) for number in range(count)]


def test_c2_order_holds_through_retries(engine_runner: Runner, world: World) -> None:
    """Every third record fails once or twice; no record of its key passes it meanwhile."""
    world.create(partitions=2)
    records = keyed(240, 2)
    world.send(one._replace(value={"fail_times": index % 3}) for index, one in enumerate(records))
    engine_runner.run()
    assert sum(world.begun().values()) == 480, "a third fails once, a third twice"
    world.accepts(records=240, duplicates_max=0)


def test_c2_order_holds_through_two_steps(engine_runner: Runner, world: World) -> None:
    """A retry repeats the failed step only, and both steps see each key in order."""
    world.create(partitions=2)
    scripts = [{"first": {"fail_times": number % 2}, "second": {"fail_times": number % 3}} for number in range(120)]
    world.send(one._replace(value=script) for one, script in zip(keyed(120, 2), scripts, strict=True))
    engine_runner.run(engine_runner.shape(steps=(Step("first"), Step("second"))))
    calls: dict[str, int] = defaultdict(int)
    for event in world.events(Begun):
        calls[event.step] += 1
    assert sorted(calls.values()) == [120 + 60, 120 + 120]
    world.accepts(records=120, duplicates_max=0)


def test_c2_the_next_record_may_be_in_step_one_while_this_one_is_in_step_two(
    async_runner: Runner, world: World
) -> None:
    """Steps overlap for one key: record 1 ends step one while record 0 still runs in step two."""
    world.create()
    release = world.flag("release")
    world.send([Given(b"a", {"second": {"hold_until": str(release)}}), Given(b"a", {})])
    member = async_runner.start(async_runner.shape(steps=(Step("first"), Step("second"))), until="end")
    eventually(lambda: any(event.offset == 1 for event in world.events(Ended)), "record 1 has ended the first step")
    assert not world.settled()
    release.touch()
    assert member.wait() == 0
    world.accepts(records=2, duplicates_max=0)


def test_c2_the_next_attempt_waits_for_the_real_end_of_a_timed_out_call(engine_runner: Runner, world: World) -> None:
    """Fault 16. A coroutine that swallows its cancellation runs on past its time-out; neither the next attempt nor
    the next record of the key begins before it has really ended, and its late result does not count (fault 14).
    """
    world.create()
    release = world.flag("release")
    world.send([Given(b"a", {"hold_until": str(release), "stubborn": True}), Given(b"a", {})])
    shape = engine_runner.shape(steps=(Step(timeout_s=0.1),))
    member = engine_runner.start(shape, until="end")
    eventually(world.flag("release.cancelled").exists, "the call is past its time-out and still runs")
    assert [event.offset for event in world.events(Begun)] == [0]
    release.touch()
    assert member.wait() == 0
    assert [(event.offset, event.attempt) for event in world.events(Begun)] == [(0, 1), (0, 2), (1, 1)]
    assert world.events(Ended)[0].outcome == "failed"
    world.accepts(records=2, duplicates_max=0)


def test_c2_the_next_record_waits_for_the_dead_letter_to_be_acknowledged(engine_runner: Runner, world: World) -> None:
    """A dead record leaves its lane when its letter is acknowledged, not when it is ruled dead."""
    world.create()
    letters = world.create(topic=f"{world.topic}-dead")
    world.send([Given(b"a", {"raise": "poison"} if number % 2 else {}) for number in range(10)])
    engine_runner.run(engine_runner.shape(dead_letters={"topic": letters}))
    history = world.history()
    for event in history:
        if isinstance(event, Begun) and event.offset > 0:
            before = [other for other in history[: history.index(event)] if isinstance(other, Settled)]
            assert before[-1].offset == event.offset - 1
    world.accepts(records=10, duplicates_max=0)


def test_c2_outputs_of_a_key_leave_in_order(engine_runner: Runner, world: World) -> None:
    """The output topic holds the answers of each key in the order of its records, through retries."""
    world.create(partitions=2)
    out = world.create(partitions=3, topic=f"{world.topic}-out")
    scripts = [{"answer": str(number), "fail_times": number % 4 == 0} for number in range(200)]
    world.send(one._replace(value=script) for one, script in zip(keyed(200, 2), scripts, strict=True))
    engine_runner.run(engine_runner.shape(write=out))
    assert answers_by_key(world.read(out)) == {b"key-%d" % key: list(range(key, 200, KEYS)) for key in range(KEYS)}
    world.accepts(records=200, duplicates_max=0)


def answers_by_key(found: list[Found]) -> dict[bytes | None, list[int]]:
    """Answer the outputs of each key in the order of the log."""
    answers: dict[bytes | None, list[int]] = defaultdict(list)
    for one in found:
        answers[one.key].append(int(one.value or b""))
    return answers


def test_c2_a_crash_repeats_a_suffix_and_skips_nothing(engine_runner: Runner, world: World) -> None:
    """kill -9 twice; each time the next member goes on with what was not settled, key by key in order."""
    world.create(partitions=2)
    out = world.create(topic=f"{world.topic}-out")
    scripts = [{"answer": str(n), "sleep_s": 0.002, "fail_times": n % 7 == 0} for n in range(600)]
    world.send(one._replace(value=script) for one, script in zip(keyed(600, 2), scripts, strict=True))
    shape = engine_runner.shape(write=out)
    killed = {}
    for name, settled in (("a", 100), ("b", 250)):
        member = engine_runner.start_process(shape, member=name, session_timeout_s=1.5)
        eventually(lambda settled=settled: len(world.settled()) > settled, f"{settled} records are settled")
        member.kill()
        killed[member.pid] = member.killed_ns
    engine_runner.run(shape, member="c")
    world.accepts(records=600, killed=killed)
    for key, answers in answers_by_key(world.read(out)).items():
        assert_replays_are_suffixes(key, answers)


def assert_replays_are_suffixes(key: bytes | None, answers: list[int]) -> None:
    """Going back is a replay; going forward never leaves a record out."""
    highest = -1
    for answer in answers:
        assert answer <= highest + KEYS or highest == -1, f"{key!r}: {answer} came after {highest}"
        highest = max(highest, answer)


def test_c2_order_holds_while_partitions_move(engine_runner: Runner, world: World) -> None:
    """A second member joins, both work, it leaves again: each key stays in order, and nothing is done twice."""
    world.create(partitions=4)

    def works(name: str) -> bool:
        world.send(keyed(KEYS, 4, sleep_s=0.003))
        return any(event.member == name for event in world.events(Settled))

    first = engine_runner.start(member="a")
    eventually(lambda: works("a"), "the first member works")
    second = engine_runner.start(member="b")
    eventually(lambda: works("b"), "the second member works")
    second.stop()
    world.send(keyed(KEYS, 4))
    assert second.wait() == 0
    world.send(keyed(KEYS, 4))
    ends = world.ends()
    eventually(lambda: world.positions() == ends, "all records are settled and committed")
    first.stop()
    assert first.wait() == 0
    world.accepts(records=sum(ends.values()), duplicates_max=0)


def test_c2_null_keys_have_no_order_unless_asked_for_and_the_empty_key_is_a_key(
    async_runner: Runner, world: World
) -> None:
    """Fault 10. Records without a key do not wait for each other; those of the key b"" do."""
    world.create()
    release = world.flag("release")
    hold = {"hold_until": str(release)}
    world.send([Given(None, hold), Given(None, hold), Given(b"", hold), Given(b"", hold)])
    member = async_runner.start(until="end")
    eventually(lambda: set(world.begun()) == {(0, 0), (0, 1), (0, 2)}, "both null keys and one empty key run")
    release.touch()
    assert member.wait() == 0
    world.accepts(records=4, duplicates_max=0)


def test_c2_null_keys_keep_their_order_when_asked_for(engine_runner: Runner, world: World) -> None:
    """With null_key="ordered" the records without a key are one lane of their partition."""
    world.create()
    release = world.flag("release")
    records = [Given(None, {"hold_until": str(release)}), Given(None), Given(b"a")]
    world.send(records, ordered_by=lambda given: given.key or b"no key")
    member = engine_runner.start(engine_runner.shape(null_key="ordered"), until="end")
    eventually(world.begun, "the first record runs")
    release.touch()
    assert member.wait() == 0
    order = [event.offset for event in world.events(Begun) if event.offset != 2]
    ends = [event.offset for event in world.events(Ended) if event.offset != 2]
    assert order == ends == [0, 1]
    world.accepts(records=3, duplicates_max=0)


def test_c2_ordering_by_partition_is_one_lane(engine_runner: Runner, world: World) -> None:
    """With ordering="partition" all records of a partition run one after another, also through a retry."""
    world.create()
    records = [Given(b"key-%d" % number, {"fail_times": number % 3 == 0}) for number in range(12)]
    world.send(records, ordered_by=lambda _: b"all")
    retry = {**QUICK_RETRY, "initial_s": 0.01}
    engine_runner.run(engine_runner.shape(ordering="partition", steps=(Step(retry=retry),)))
    offsets = [event.offset for event in world.events(Begun)]
    assert offsets == sorted(offsets)
    assert len(offsets) == 16
    world.accepts(records=12, duplicates_max=0)


def test_c2_an_ordering_key_of_ones_own_orders_within_a_partition(engine_runner: Runner, world: World) -> None:
    """Each record has a key of its own, and an account in its value: each account's records of a partition stay in
    order, through retries and two steps.
    """
    world.create(partitions=2)
    numbers = range(80)
    scripts = [
        {"account": n % 5, "first": {"fail_times": n % 2}, "second": {"fail_times": int(n % 3 == 0)}} for n in numbers
    ]
    records = [Given(b"record-%d" % n, script, n % 2) for n, script in zip(numbers, scripts, strict=True)]
    world.send(records, ordered_by=lambda given: b"account-%d" % given.value["account"])
    steps = (Step("first"), Step("second"))
    engine_runner.run(engine_runner.shape(ordering_key="account", steps=steps))
    world.accepts(records=80, duplicates_max=0)


def test_c2_without_an_order_records_of_one_key_run_side_by_side(async_runner: Runner, world: World) -> None:
    """With ordering="none" nobody waits for anybody; nothing is lost of it, and nothing is committed too far."""
    world.create()
    release = world.flag("release")
    records = [Given(b"a", {"hold_until": str(release)}), *(Given(b"a") for _ in range(20))]
    world.send(records, ordered_by=lambda _: None)
    member = async_runner.start(async_runner.shape(ordering="none"), until="end")
    eventually(lambda: len(world.settled()) == 20, "all behind the first are done")
    assert world.positions() == {0: 0}
    release.touch()
    assert member.wait() == 0
    world.accepts(records=21, duplicates_max=0)
