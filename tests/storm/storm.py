"""A churn storm: members of one group are killed and stopped at random while records come, then the oracle judges.

    python tests/storm/storm.py [--seconds 60] [--records 200000] [--members 4] [--seed N] [--engine async]

Four member processes share a group. Handlers take up to 50 ms, one call in a hundred fails. At most once per 2 s a
member, chosen at random, is killed with kill -9 or stopped by a signal, and started again. Records come all the time.
Then the sky clears, the rest is drained, and the verdict is told: lost, reordered, overlapping and skipped must be 0,
repeats under 20 %, each of them something that a killed member had settled and not yet committed, and every member must
have made progress, the last ones too.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "contract"))

from contract_pipelines import Shape, Step  # noqa: E402  # its folder had to be named first
from contract_runner import ProcessMember, Runner  # noqa: E402
from contract_world import Given, World, eventually  # noqa: E402

from anabranch import Broker  # noqa: E402
from anabranch.core.history import Begun, Committed, Settled  # noqa: E402
from anabranch.testing.history import History, Process, read_history  # noqa: E402
from anabranch.testing.oracle import Verdict, judge  # noqa: E402

PARTITIONS = 16
REPEATS_MAX = 0.2
CALM = 0.1
"""The part of the records that comes after the storm: each member that is alive must get some of it."""
START_S_MAX = 30.0
DRAIN_S_MAX = 120.0
SEND_SLICE_S = 0.25


@dataclass(frozen=True)
class Weather:
    """How hard it blows."""

    seconds: float = 60.0
    records: int = 200_000
    members: int = 4
    keys: int = 2_000
    gust_s: float = 2.0
    """The least time between two kills or stops."""
    session_timeout_s: float = 6.0
    engine: str = "async"
    seed: int = 1
    bootstrap: str | None = None


@dataclass
class Place:
    """A member's place: one process after another fills it."""

    number: int
    member: ProcessMember
    incarnation: int = 1


@dataclass
class Storm:
    """One storm over one group."""

    weather: Weather
    world: World
    random: random.Random
    places: list[Place] = field(default_factory=list)
    killed: dict[int, int] = field(default_factory=dict)
    gusts: Counter[str] = field(default_factory=Counter)
    sent: int = 0

    def __post_init__(self) -> None:
        self.runner = Runner(self.weather.engine, self.world)
        step = Step("weather", concurrency=256, retry={"attempts": None, "initial_s": 0.02, "max_s": 0.2})
        self.shape = Shape(self.world.group, self.world.topic, steps=(step,), commit={"interval_s": 1.0})

    def blow(self) -> None:
        """Start the members, let the storm pass over them, and drain."""
        self.world.create(PARTITIONS)
        self.places = [Place(number, self._start(number, 1)) for number in range(self.weather.members)]
        sender = threading.Thread(target=self._send_all, name="sender", daemon=True)
        sender.start()
        end = time.monotonic() + self.weather.seconds
        while time.monotonic() < end and sender.is_alive():
            pause_s = self.weather.gust_s * (1 + self.random.random() / 2)
            self._let_time_pass(min(pause_s, max(0.0, end - time.monotonic())))
            self._gust()
        say(f"the storm is over after {self.gusts['kill -9']} times kill -9 and {self.gusts['stop']} stops")
        sender.join()
        self._calm()

    def _send_all(self) -> None:
        """Send a tenth at once, then evenly until shortly before the end of the storm."""
        stormy = int(self.weather.records * (1 - CALM))
        self._send(stormy // 10)
        slices = max(1, int(self.weather.seconds * 0.9 / SEND_SLICE_S))
        begun = time.monotonic()
        for number in range(slices):
            self._send((stormy - self.sent) // (slices - number))
            time.sleep(max(0.0, begun + (number + 1) * SEND_SLICE_S - time.monotonic()))
        self._send(stormy - self.sent)

    def _send(self, count: int) -> None:
        keys = self.weather.keys
        numbers = range(self.sent, self.sent + count)
        self.world.send(Given(b"key-%d" % (number % keys), b"", number % keys % PARTITIONS) for number in numbers)
        self.sent += count

    def _gust(self) -> None:
        place = self.random.choice(self.places)
        how = self.random.choice(["kill -9", "stop"])
        self.gusts[how] += 1
        if how == "kill -9":
            place.member.kill()
            assert place.member.killed_ns is not None
            self.killed[place.member.pid] = place.member.killed_ns
        else:
            place.member.stop()
            code = place.member.wait()
            # The signal's own number: it came before the program had taken it over, in its first second.
            assert code in {0, -signal.SIGTERM}, f"{place.member.name} ended with {code}: {place.member.said()}"
        place.incarnation += 1
        place.member = self._start(place.number, place.incarnation)

    def _let_time_pass(self, seconds: float) -> None:
        """Watch the members meanwhile: one that ends by itself is a fault of ours."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for place in self.places:
                assert place.member.alive, f"{place.member.name} ended by itself: {place.member.said()}"
            time.sleep(0.1)
        say(f"sent {self.sent:>7,}  " + "  ".join(self._told(place) for place in self.places))

    def _told(self, place: Place) -> str:
        statistics = place.member.statistics()
        return (
            f"{place.member.name}: {statistics.get('settled', 0):>6,}" if statistics else f"{place.member.name}: starts"
        )

    def _calm(self) -> None:
        """Wait until all places share the partitions, send the rest, and drain."""
        eventually(lambda: all(self._owns(place) for place in self.places), "every member has partitions", START_S_MAX)
        self._send(self.weather.records - self.sent)
        ends = self.world.ends()
        eventually(lambda: self.world.positions() == ends, "all records are settled and committed", DRAIN_S_MAX)
        for place in self.places:
            place.member.stop()
        for place in self.places:
            code = place.member.wait()
            assert code == 0, f"{place.member.name} ended with {code}: {place.member.said()}"

    def _owns(self, place: Place) -> bool:
        return bool(place.member.statistics().get("partitions"))

    def _start(self, number: int, incarnation: int) -> ProcessMember:
        return self.runner.start_process(
            self.shape, member=f"m{number}.{incarnation}", session_timeout_s=self.weather.session_timeout_s
        )

    def judged(self) -> Verdict:
        """Let the oracle judge, and look at each member by itself."""
        history = read_history(self.world.histories)
        settled = Counter(event.member for batch in history for event in batch.events if isinstance(event, Settled))
        idle = [place.member.name for place in self.places if not settled[place.member.name]]
        assert not idle, f"{idle} made no progress, the others did: {dict(settled)}"
        self._check_repeats(history)
        return judge(
            history,
            records=self.weather.records,
            duplicates_max=int(self.weather.records * REPEATS_MAX),
            killed=self.killed,
        )

    def _check_repeats(self, history: History) -> None:
        """Check that only the work of killed members is repeated, and nothing of it that was committed."""
        settled_by: dict[tuple[int, int], Process] = {}
        committed: Counter[int] = Counter()
        for batch in history:
            for event in batch.events:
                if isinstance(event, Committed):
                    committed[event.partition] = max(committed[event.partition], event.position)
                elif isinstance(event, Settled):
                    settled_by[event.partition, event.offset] = batch.process
                elif isinstance(event, Begun) and (event.partition, event.offset) in settled_by:
                    before = settled_by[event.partition, event.offset]
                    what = f"partition {event.partition} offset {event.offset}, settled by {before}, began again"
                    assert before.pid in self.killed, f"{what}, and {before} was not killed"
                    known = committed[event.partition]
                    assert event.offset >= known, f"{what} although {known} was committed"


def say(line: str) -> None:
    """Tell how it goes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(weather: Weather, folder: Path) -> Verdict:
    """Let one storm pass and answer its verdict."""
    folder.mkdir(parents=True, exist_ok=True)
    if weather.bootstrap is not None:
        return _run(weather, World(weather.bootstrap, folder))
    with Broker() as broker:
        return _run(weather, World(broker.bootstrap, folder, broker=broker))


def _run(weather: Weather, world: World) -> Verdict:
    storm = Storm(weather, world, random.Random(weather.seed))
    try:
        storm.blow()
    finally:
        storm.runner.discard()
        world.close()
    say(f"judging the history of {weather.records:,} records")
    return storm.judged()


def main() -> int:
    """Run from the command line; the exit code is 0 if the verdict is ok."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind in (("seconds", float), ("records", int), ("members", int), ("seed", int), ("engine", str)):
        parser.add_argument(f"--{name}", type=kind, default=None)
    parser.add_argument("--history", help="keep histories and logs in this folder (default: a temporary one)")
    parser.add_argument("--bootstrap", help="a Kafka to use instead of an embedded broker")
    given: dict[str, Any] = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    kept = given.pop("history", None)
    given.setdefault("seed", random.SystemRandom().randrange(10**6))
    weather = Weather(**given)
    say(f"{weather.members} members, {weather.records:,} records, {weather.seconds:g} s (--seed {weather.seed})")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="anabranch-storm-") as temporary:
        verdict = run(weather, Path(kept or temporary))
    repeats = verdict["duplicated"].count / weather.records
    say(f"{time.monotonic() - started:.0f} s in all, every member made progress, {repeats:.1%} repeated")
    say(verdict.line() if verdict.ok else verdict.report())
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main())
