"""Fault 23: a key that fails, a handler that hangs and a hot key, beside neighbours that keep their rate.

The rate of the others is bound by the slots of two members (512 calls of 0.2 s each), so whatever a troubled key held
of them would show. Runs without and with trouble alternate; what counts is the median of their ratios.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from contract_pipelines import Launch, Shape, Step
from contract_spark import SparkMember
from contract_world import Given, World, eventually

from anabranch.core.history import Sent, Settled
from anabranch.testing.history import read_history

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torture_form import Torture

    from anabranch import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

PARTITIONS = 4
KEYS = 1000
CALL_S = 0.2
RATE = 2 * 256 / CALL_S
HOT_EVERY = 33
"""One record in so many is of the hot key: 80 a second, thirty times what another key has."""
HOT_CALL_S = 0.008
TROUBLE_AT = 2000
"""Where the failing and the hanging record stand: behind so many others."""
TIMEOUT_S = 10.0
FAILING_S = 60.0
CALM_S = 30.0
PAIRS = 5
RATIO_MIN = 0.95
SHOWN_S_MAX = 10.0
FAILING, HANGING, HOT = b"failing", b"hanging", b"hot"


@dataclass
class Street:
    """One topic, one group, one run: with trouble or without."""

    world: World
    troubled: bool
    seconds: float

    def records(self) -> Iterator[Given]:
        """Give what the run has to do, more than it can in the time."""
        count = int(RATE * (self.seconds * 1.3 + 10))
        flag = str(self.world.flag("over"))
        for number in range(count):
            if self.troubled and number in {TROUBLE_AT, TROUBLE_AT + 1}:
                key, script = (FAILING, "fail_until") if number == TROUBLE_AT else (HANGING, "hold_until")
                yield Given(key, {script: flag}, number - TROUBLE_AT)
            elif self.troubled and number % 500 == 250 and number > TROUBLE_AT:
                behind = number // 500 % 2
                yield Given((FAILING, HANGING)[behind], {}, behind)
            elif self.troubled and number % HOT_EVERY == 0:
                yield Given(HOT, {"sleep_s": HOT_CALL_S}, 3)
            else:
                yield Given(b"key-%d" % (number % KEYS), {"sleep_s": CALL_S}, number % KEYS % PARTITIONS)

    def start(self) -> SparkMember:
        """Run it in the session of this process."""
        step = Step(concurrency=256, timeout_s=TIMEOUT_S, retry={"attempts": None})
        shape = Shape(self.world.group, self.world.topic, steps=(step,), commit={})
        return SparkMember(
            Launch(
                shape=shape,
                engine="spark",
                bootstrap=self.world.bootstrap,
                member="run",
                history=str(self.world.histories),
                state_dir=str(self.world.folder / "state"),
                session_timeout_s=10.0,
                kafka={},
                spark={"members": 2},
                drain_s=2.0,
            )
        )

    def rate(self, begun_ns: int, ended_ns: int) -> float:
        """Answer how many records of the others were settled in a second."""
        others, settled = set(), 0
        for batch in read_history(self.world.histories):
            for each in batch.events:
                if isinstance(each, Sent) and each.key not in {FAILING, HANGING, HOT}:
                    others.add((each.partition, each.offset))
                elif isinstance(each, Settled) and begun_ns < batch.time_ns <= ended_ns:
                    settled += (each.partition, each.offset) in others
        return settled / (ended_ns - begun_ns) * 1e9


def test_others_keep_their_rate_and_lag_tools_see_the_truth(
    torture: Torture, anabranch_broker: Broker, tmp_path: Path
) -> None:
    """A key fails for 60 s, a handler hangs to its time-out, a hot key is healthy: the others go on, and it is told.

    What would go wrong: a waiting retry or a hanging call holds more than its own slot, the hot key's queue fills the
    intake, commits stand still and lag tools show nothing for minutes.
    """
    if not torture.full:
        pytest.skip("in make torture-spark")
    ratios = []
    for pair in range(1, PAIRS + 1):
        rates = {}
        for troubled in (False, True) if pair % 2 else (True, False):
            folder = tmp_path / f"{pair}-{'troubled' if troubled else 'calm'}"
            folder.mkdir()
            world = World(anabranch_broker.bootstrap, folder)
            rates[troubled] = walk(torture, Street(world, troubled, FAILING_S if troubled else CALM_S))
            world.close()
        ratios.append(rates[True] / rates[False])
        torture.say(
            f"pair {pair}: {rates[False]:,.0f}/s calm, {rates[True]:,.0f}/s with trouble, ratio {ratios[-1]:.3f} "
            f"(the slots allow {RATE:,.0f}/s)"
        )
    median = statistics.median(ratios)
    torture.say(f"the others keep {median:.3f} of their rate (median of {PAIRS} pairs, at least {RATIO_MIN})")
    assert median >= RATIO_MIN


def walk(torture: Torture, street: Street) -> float:
    """Let one run go for its time and answer the rate of the others."""
    world = street.world
    world.create(PARTITIONS)
    world.send(street.records())
    run = street.start()
    try:
        eventually(lambda: run.statistics()["settled"] > 2 * TROUBLE_AT, "the members work", 120)
        if street.troubled:  # each member in its own time: what they have settled in all does not say it
            eventually(
                lambda: has_begun(street, run), "the failing and the hanging record hold up their partitions", 60
            )
        begun_ns, until = time.monotonic_ns(), time.monotonic() + street.seconds
        if street.troubled:
            look(torture, street, run)
        time.sleep(max(0.0, until - time.monotonic()))  # what is measured is a rate
        ended_ns = time.monotonic_ns()
        told = run.statistics()
        world.flag("over").touch()
        if street.troubled:
            eventually(lambda: passed(street), "the failing and the hanging record pass when their trouble is over", 30)
    finally:
        run.stop()
        code = run.wait(60)
    assert code in {0, 5}, run.said()
    verdict = world.verdict()
    for rule in ("skipped", "overlapping", "reordered", "committed_too_far"):
        assert verdict[rule].count == 0, verdict.report()
    assert told["retries"] > 0 if street.troubled else told["retries"] == 0
    return street.rate(begun_ns, ended_ns)


def trouble(world: World) -> dict[bytes, tuple[int, int]]:
    """Answer where the failing and the hanging record stand."""
    found: dict[bytes, tuple[int, int]] = {}
    for each in world.events(Sent):
        if each.key in {FAILING, HANGING}:
            found.setdefault(each.key, (each.partition or 0, each.offset or 0))
    return found


def has_begun(street: Street, run: SparkMember) -> bool:
    """Look whether everything before both is done."""
    places = trouble(street.world).values()
    return all(told_committable(run, street.world, partition) == offset for partition, offset in places)


def passed(street: Street) -> bool:
    """Look whether both have been settled after all."""
    return set(trouble(street.world).values()) <= street.world.settled().keys()


def look(torture: Torture, street: Street, run: SparkMember) -> None:
    """See that committable is shown to everybody soon, and that the blocker is named."""
    world = street.world
    places = trouble(world)
    begun = time.monotonic()
    wanted = {number: told_committable(run, world, number) for number in range(PARTITIONS)}
    eventually(
        lambda: all(world.positions().get(number, 0) >= position for number, position in wanted.items()),
        f"what was committable {wanted} is committed",
        SHOWN_S_MAX,
    )
    shown_s = time.monotonic() - begun
    partition, offset = places[FAILING]
    assert world.positions()[partition] == offset, "a Kafka tool sees the failing record as the next one"
    lag = json.loads(command("lag", world, "--json"))
    told = {each["partition"]: each for each in lag["partitions"]}
    for key in (FAILING, HANGING):
        number, place = places[key]
        assert (told[number]["committed"], told[number]["committable"]) == (place, place)
    blocker = f"{world.topic}/{partition} at offset {offset}"
    # What has not held anything back for a second yet is no blocker: it may have begun just now.
    why = eventually(
        lambda: said if blocker in (said := command("why", world)) else "", f"{blocker} is named", SHOWN_S_MAX
    )
    torture.say(f"  committable was committed within {shown_s:.1f} s; why: {why.splitlines()[0]}")


def told_committable(run: SparkMember, world: World, partition: int) -> int:
    """Answer what the run says is committable, 0 while nobody has the partition."""
    told: dict[str, Any] = run.statistics()["partitions"].get(f"{world.topic}/{partition}", {})
    return int(told.get("committable", 0))


def command(name: str, world: World, *more: str) -> str:
    """Run a command as a person would, and answer what it prints."""
    words = [name, world.group, "-b", world.bootstrap, "--state-dir", str(world.folder / "state"), *more]
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", *words], env=dict(os.environ), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
