"""A pipeline from topic to commit on the embedded broker: order, retries, letters, outputs, resources, ends."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from runtime_topics import committed, log_ends, numbered, read_all, send
from waiting import eventually

from anabranch import Breaker, Pipeline, Poison, Retry
from anabranch.core.errors import Halted, UsageError
from anabranch.kafka.admin import Admin
from anabranch.kafka.client import Connection
from anabranch.testing.history import HistoryWriter, read_history
from anabranch.testing.oracle import judge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from anabranch import Broker

QUICK = Retry(attempts=3, initial_s=0.01, max_s=0.02)


@pytest.fixture
def group() -> str:
    return f"group-{secrets.token_hex(4)}"


@pytest.fixture(params=["async", "inline"])
def options(request: pytest.FixtureRequest, anabranch_broker: Broker, tmp_path: Path) -> dict[str, Any]:
    """What each run of this file is started with, once per engine."""
    return {
        "engine": request.param,
        "bootstrap": anabranch_broker.bootstrap,
        "state_dir": tmp_path / "state",
        "kafka": {"heartbeat.interval.ms": 500},
        "session_timeout_s": 6,
    }


def test_every_record_is_handled_in_the_order_of_its_key_and_committed(
    options: dict[str, Any], anabranch_topic: str, group: str, tmp_path: Path
) -> None:
    """2,000 records of 20 keys until the end: the oracle finds nothing, and the group stands at the ends."""
    bootstrap = options["bootstrap"]
    seen: dict[bytes, list[int]] = defaultdict(list)

    async def handle(value: bytes, ctx: Any) -> None:
        seen[ctx.key].append(int(value))
        if int(value) % 10 == 0:
            await asyncio.sleep(0)

    with HistoryWriter(tmp_path / "history", "m") as recorder:
        send(bootstrap, anabranch_topic, numbered(20, 100), recorder)
        run = (
            Pipeline(group)
            .read(anabranch_topic, bytes)
            .process(handle)
            .start(recorder=recorder, member="m", until="end", **options)
        )
        assert run.join(60)
    assert run.result.exit_code == 0
    assert run.result.reason == "done"
    assert all(numbers == list(range(100)) for numbers in seen.values())
    assert len(seen) == 20
    assert committed(bootstrap, group) == log_ends(bootstrap, anabranch_topic)
    assert run.statistics()["handled"] == 2000
    verdict = judge(read_history(tmp_path / "history"))
    assert verdict.ok, verdict.line()


def test_a_failing_record_is_tried_again_and_only_then_followed_by_the_next_of_its_key(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """Every fifth record fails twice; order per key holds all the same."""
    send(options["bootstrap"], anabranch_topic, numbered(5, 20))
    calls: dict[bytes, list[tuple[int, int]]] = defaultdict(list)

    async def handle(value: bytes, ctx: Any) -> None:
        calls[ctx.key].append((int(value), ctx.attempt))
        if int(value) % 5 == 0 and ctx.attempt < 3:
            raise ValueError("again")

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(handle, retry=QUICK, breaker=Breaker(enabled=False))
    run = pipeline.start(until="end", **options)
    assert run.join(60)
    attempts = [(n, attempt) for n in range(20) for attempt in ((1, 2, 3) if n % 5 == 0 else (1,))]
    assert all(each == attempts for each in calls.values())
    assert run.statistics()["retries"] == 5 * 4 * 2


def test_a_poison_record_goes_to_the_dead_letters_byte_for_byte(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """Its key goes on when the letter is acknowledged; a null value is a value."""
    bootstrap, dead = options["bootstrap"], f"{anabranch_topic}-dead"
    send(bootstrap, anabranch_topic, [(b"a", b"1"), (b"a", None), (b"a", b"3")])
    seen: list[bytes | None] = []

    def handle(value: bytes | None) -> None:
        seen.append(value)
        if value is None:
            raise Poison("no value")

    pipeline = Pipeline(group).read(anabranch_topic, decode=lambda record: record.value).process(handle)
    run = pipeline.dead_letters(dead, ratio_max=1).start(until="end", **options)
    assert run.join(60)
    assert seen == [b"1", None, b"3"]
    (letter,) = read_all(bootstrap, dead, 1)
    assert (letter.key(), letter.value()) == (b"a", None)
    assert run.statistics()["dead"] == 1


def test_without_dead_letters_a_record_that_would_die_halts_the_run_and_what_is_settled_is_committed(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """Exit code 4, a sentence that names the fix, and the position stands before the record."""
    bootstrap = options["bootstrap"]
    send(bootstrap, anabranch_topic, [(b"a", b"%d" % number) for number in range(5)])

    async def handle(value: bytes) -> None:
        if value == b"3":
            raise Poison("no")

    run = Pipeline(group).read(anabranch_topic, bytes).process(handle).start(**options)
    with pytest.raises(Halted, match=r"dead_letters"):
        run.join(60)
    assert run.result.exit_code == 4
    assert run.result.reason == "halted"
    assert sum(committed(bootstrap, group).values()) == 3


def test_outputs_of_two_steps_are_written_in_order(options: dict[str, Any], anabranch_topic: str, group: str) -> None:
    """An async step, then a plain one in threads; the record settles when its output is acknowledged."""
    bootstrap, out = options["bootstrap"], f"{anabranch_topic}-out"
    send(bootstrap, anabranch_topic, numbered(4, 25))

    async def double(value: bytes) -> int:
        return 2 * int(value)

    def add_one(value: int) -> bytes:
        return b"%d" % (value + 1)

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(double).process(add_one, concurrency=4).write(out)
    run = pipeline.start(until="end", **options)
    assert run.join(60)
    found: dict[bytes, list[int]] = defaultdict(list)
    for message in read_all(bootstrap, out, 100):
        found[message.key()].append(int(message.value()))
    assert all(numbers == [2 * n + 1 for n in range(25)] for numbers in found.values())
    assert len(found) == 4


def test_the_topic_of_outputs_is_there_before_the_first_output(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """Who reads what a pipeline writes can start beside it; it has as many partitions as what is read."""

    async def handle(value: bytes) -> bytes:
        return value

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(handle).write(f"{anabranch_topic}-out")
    assert pipeline.start(until="end", **options).join(60)
    topics = {each.name: each.partitions for each in Admin(Connection(options["bootstrap"])).topics()}
    assert topics[f"{anabranch_topic}-out"] == topics[anabranch_topic]


def test_an_ordering_key_of_the_users_own_makes_the_lanes(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """Records with one key and two ordering keys: a failing one delays its own ordering key only."""
    send(options["bootstrap"], anabranch_topic, [(b"k", b"a1"), (b"k", b"b1"), (b"k", b"a2"), (b"k", b"b2")])
    seen: list[bytes] = []

    async def handle(value: bytes, ctx: Any) -> None:
        seen.append(value)
        if value == b"a1" and ctx.attempt == 1:
            raise ValueError("once")

    read = Pipeline(group).read(anabranch_topic, bytes, key=lambda record: record.value[:1])
    run = read.process(handle, retry=Retry(initial_s=0.2, max_s=0.2, jitter=0)).start(until="end", **options)
    assert run.join(60)
    assert seen == [b"a1", b"b1", b"b2", b"a1", b"a2"]


def test_what_the_lifespan_opens_is_there_before_the_first_call_and_closed_after_the_last(
    options: dict[str, Any], anabranch_topic: str, group: str
) -> None:
    """It is opened and closed once, on the loop that the handlers run on."""
    send(options["bootstrap"], anabranch_topic, numbered(3, 5))
    told: list[str] = []
    loops: set[int] = set()

    @asynccontextmanager
    async def open_clients() -> AsyncIterator[str]:
        loops.add(id(asyncio.get_running_loop()))
        told.append("opened")
        yield "client"
        await asyncio.sleep(0)
        told.append("closed")

    async def handle(_value: bytes, ctx: Any) -> None:
        loops.add(id(asyncio.get_running_loop()))
        told.append(ctx.resources)

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(handle).lifespan(open_clients)
    assert pipeline.start(until="end", **options).join(60)
    assert told == ["opened", *["client"] * 15, "closed"]
    assert len(loops) == 1


def test_a_run_lives_beside_a_running_event_loop(options: dict[str, Any], anabranch_topic: str, group: str) -> None:
    """`async with running()`: our loop goes on while the run's own works, and the run has stopped afterwards."""
    send(options["bootstrap"], anabranch_topic, numbered(3, 5))
    count = 0

    async def handle(_value: bytes) -> None:
        nonlocal count
        count += 1

    async def story() -> Any:
        async with Pipeline(group).read(anabranch_topic, bytes).process(handle).running(**options) as run:
            async with asyncio.timeout(30):
                while count < 15:
                    await asyncio.sleep(0.01)
        return run

    run = asyncio.run(story())
    assert run.result.exit_code == 0
    assert run.result.reason == "stopped"
    assert committed(options["bootstrap"], group) == log_ends(options["bootstrap"], anabranch_topic)


def test_until_a_time_settles_what_is_older_and_leaves_the_rest(
    anabranch_broker: Broker, anabranch_topic: str, group: str, tmp_path: Path
) -> None:
    """Two batches of records, a time between them: the second one may have begun, and the run ends by itself."""
    bootstrap = anabranch_broker.bootstrap
    send(bootstrap, anabranch_topic, numbered(4, 5))
    between = datetime.now(UTC) + timedelta(milliseconds=2)
    eventually(lambda: datetime.now(UTC) > between + timedelta(milliseconds=2), "the clock moves on")
    send(bootstrap, anabranch_topic, numbered(4, 5))
    seen: list[bytes] = []

    async def handle(value: bytes) -> None:
        seen.append(value)

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(handle)
    run = pipeline.start("async", bootstrap=bootstrap, state_dir=tmp_path, until=between)
    assert run.join(60)
    assert run.result.reason == "done"
    assert sum(committed(bootstrap, group).values()) >= 20


def test_an_empty_topic_ends_at_once(options: dict[str, Any], anabranch_topic: str, group: str) -> None:
    """`until="end"` of nothing is done with nothing."""

    async def handle(_value: bytes) -> None:
        raise AssertionError("nothing to handle")

    run = Pipeline(group).read(anabranch_topic, bytes).process(handle).start(until="end", **options)
    assert run.join(60)
    assert run.result.reason == "done"


def test_until_the_end_waits_for_the_partitions_of_other_members(
    anabranch_broker: Broker, anabranch_topic: str, group: str, tmp_path: Path
) -> None:
    """Two members share the work; both end only when the group has settled all of it."""
    bootstrap = anabranch_broker.bootstrap
    send(bootstrap, anabranch_topic, numbered(40, 20))
    seen: list[bytes] = []

    async def handle(value: bytes) -> None:
        await asyncio.sleep(0.002)
        seen.append(value)

    pipeline = Pipeline(group).read(anabranch_topic, bytes).process(handle)
    shared = {"bootstrap": bootstrap, "state_dir": tmp_path, "until": "end", "kafka": {"heartbeat.interval.ms": 300}}
    runs = [pipeline.start("async", member=f"m{number}", **shared) for number in range(2)]
    for run in runs:
        assert run.join(60)
        assert run.result.reason == "done"
    assert committed(bootstrap, group) == log_ends(bootstrap, anabranch_topic)
    assert len(seen) >= 800


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"until": "tomorrow"}, "until"),
        ({"until": datetime(2020, 1, 1)}, "time zone"),  # noqa: DTZ001 - that is the point
        ({"until": datetime.now(UTC) + timedelta(days=1)}, "future"),
        ({"drain_s": -1}, "drain_s"),
        ({"bootsrap": "x"}, "bootsrap"),
        ({"kafka": {"enable.auto.commit": True}}, "enable.auto.commit"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_is_joined(given: dict[str, Any], match: str) -> None:
    """A UsageError at start, or from join, that names the option."""

    async def handle(_value: bytes) -> None: ...

    with pytest.raises(UsageError, match=match):
        Pipeline("refused").read("t", bytes).process(handle).start("async", **given).join(10)
