"""What a run on Spark is put through: records with failing, stuck and poisonous keys, kills, and the judgement.

The oracle judges the histories that the members wrote. Repeats are judged here: after each kill the group's commits are
read from the broker, with their carryover, and compared with what was settled by then. What they do not cover (settled
since the last commit, or more than a carryover holds) may be settled twice, and nothing else; what had begun and was
not settled may begin twice.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from contract_pipelines import QUICK_CLIENT, Launch, Shape, Step
from contract_runner import LocalMember
from contract_spark import START_S_MAX, SparkMember, SparkProcessMember
from contract_world import Given, World, eventually
from process_tree import is_gone

from anabranch.control.carryover import decode, topic_id_of
from anabranch.core.history import Begun, Settled
from anabranch.testing.history import read_history

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from torture_form import Torture

    from anabranch.testing.oracle import Verdict

PARTITIONS = 4
KEYS = 120
STUCK = 2
END_S_MAX = 180.0
RETRY = {"attempts": None, "initial_s": 0.05, "max_s": 0.3, "jitter": 0.2}
Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class Cost:
    """What one kill may cost."""

    settled: int
    """Records, before it."""
    uncovered: int
    """What the killed had settled and no commit tells: since the last one, or more than its carryover could hold."""
    in_flight: int
    """What they had begun, maybe waiting for another attempt, and not settled."""


@dataclass
class Ordeal:
    """One topic and one group, and all that happens to its runs."""

    torture: Torture
    bootstrap: str
    folder: Path
    costs: list[Cost] = field(default_factory=list)
    runs: list[SparkMember | SparkProcessMember] = field(default_factory=list)
    sent: int = 0
    notes: Path | None = None
    """Where handlers themselves note that they were called, if they shall."""

    def __post_init__(self) -> None:
        self.world = World(self.bootstrap, self.folder)
        self.release = self.world.flag("release")
        self.world.create(PARTITIONS)
        self.out = self.world.create(PARTITIONS, topic=f"{self.world.topic}-out")
        self.dead = self.world.create(1, topic=f"{self.world.topic}-dead")
        self._numbers: Counter[bytes] = Counter()
        self._weighed_ns = 0

    # Records

    def send(self, count: int, sleep_s: float = 0.05) -> None:
        """Send records: one key in ten fails a few times with each record, two are stuck until the end, a few die."""
        self.world.send(self._record(number, sleep_s) for number in range(self.sent, self.sent + count))
        self.sent += count

    def _record(self, number: int, sleep_s: float) -> Given:
        chance = self.torture.random
        partition = number % PARTITIONS
        if number < STUCK:
            return Given(b"stuck-%d" % number, {"fail_until": str(self.release), "answer": "0"}, partition)
        if chance.random() < 0.005:
            return Given(b"poison-%d" % number, {"raise": "poison"}, partition)
        key = b"key-%d" % (number % KEYS)
        script: dict[str, Any] = {"answer": str(self._numbers[key]), "sleep_s": sleep_s * (0.5 + chance.random())}
        if self.notes is not None:
            script["note"] = str(self.notes)
        self._numbers[key] += 1
        if number % KEYS % 10 == 0:
            script["fail_times"] = chance.randrange(1, 4)
        return Given(key, script, partition)

    # Runs

    def shape(self, **fields: Any) -> Shape:
        """Describe the pipeline."""
        given = {
            "steps": (Step(concurrency=16, retry=dict(RETRY)),),
            "write": self.out,
            "dead_letters": {"topic": self.dead},
            "commit": {"interval_s": 1.0},
            **fields,
        }
        return Shape(self.world.group, self.world.topic, **given)

    def start(self, name: str, *, wait: bool = True, shape: Shape | None = None, **options: Any) -> SparkProcessMember:
        """Start a run in a process of its own, with a session of its own."""
        made = SparkProcessMember(self._launch(name, shape, options), self.world, secrets.token_hex(8), wait=wait)
        self.runs.append(made)
        return made

    def start_here(self, name: str, **options: Any) -> SparkMember:
        """Start a run in the session of this process."""
        made = SparkMember(self._launch(name, None, options))
        self.runs.append(made)
        return made

    def _launch(self, name: str, shape: Shape | None, options: dict[str, Any]) -> Launch:
        spark = {"members": options.pop("members", 2)}
        for option in ("master", "conf"):
            if option in options:
                spark[option] = options.pop(option)
        given = {"state_dir": str(self.folder / "state"), "session_timeout_s": 10.0, "drain_s": 20.0, **options}
        return Launch(
            shape=shape or self.shape(),
            engine="spark",
            bootstrap=self.bootstrap,
            member=name,
            history=str(self.world.histories),
            kafka=dict(QUICK_CLIENT),
            spark=spark,
            **given,
        )

    def wait_until_done(self, timeout_s: float) -> None:
        """Wait until all but what is stuck is settled: by the history, a killed member may not have told its last."""
        end = time.monotonic() + timeout_s
        while len(self.world.settled()) < self.sent - STUCK:
            assert time.monotonic() < end, "the rest is not done"
            time.sleep(1.0)  # reading a history is work

    def finish(self) -> None:
        """Let what is stuck pass, and do the rest in the session of this process."""
        self.release.touch()
        last = self.start_here("last", until="end")
        code = last.wait(END_S_MAX)
        assert code == 0, f"the last run ended with {code}: {last.said()}"
        assert self.world.positions() == self.world.ends(), "not everything is committed"

    def finish_apart(self) -> None:
        """The same without Spark: any engine goes on where another one ended, when its members' session is over."""
        self.release.touch()
        launch = replace(self._launch("last", None, {"until": "end"}), engine="async")
        last = LocalMember(launch)
        code = last.wait(END_S_MAX)
        last.discard()
        assert code == 0, f"the last run ended with {code}: {last.said()}"
        assert self.world.positions() == self.world.ends(), "not everything is committed"

    def close(self) -> None:
        """Leave nothing behind."""
        for each in self.runs:
            each.discard()
        self.world.close()

    # What a kill costs

    def weigh(self, died_ns: int, pids: Collection[int] | None = None) -> Cost:
        """Compare what is committed now with what the killed did since the kill before, and keep the difference.

        Each kill is charged with its own victims' work, also where that was a repeat: what an earlier run had left
        uncommitted, and this one did not get to, was charged before. Without `pids` all that ran until now was killed.
        """
        commits, ends = self.world.committed(), self.world.ends()
        settled: set[Place] = set()
        mine: dict[type[Begun | Settled], set[Place]] = {Begun: set(), Settled: set()}
        for batch in read_history(self.world.histories):
            if batch.time_ns > died_ns:
                break
            is_victim = batch.time_ns > self._weighed_ns if pids is None else batch.process.pid in pids
            for each in batch.events:
                if isinstance(each, Begun | Settled):
                    place = (each.partition, each.offset)
                    if isinstance(each, Settled):
                        settled.add(place)
                    if is_victim:
                        mine[type(each)].add(place)
                    else:
                        mine[type(each)].discard(place)  # it had moved on before the kill
        uncovered = in_flight = 0
        for partition in range(PARTITIONS):
            position, text = commits.get(partition, (0, ""))
            topic_id = topic_id_of(text) if text else ""
            told = decode(text, topic_id=topic_id, position=position, log_start=0, log_end=ends[partition])
            known = {offset for run in told.runs for offset in range(run.first, run.last + 1)}
            done, begun = (
                {offset for number, offset in mine[kind] if number == partition and offset >= position} - known
                for kind in (Settled, Begun)
            )
            uncovered += len(done)
            in_flight += len(begun - done)
        cost = Cost(len(settled), uncovered, in_flight)
        self.costs.append(cost)
        self._weighed_ns = died_ns
        return cost

    # The judgement

    def judged(self, *, weighed: bool = True, frozen: Collection[str] = ()) -> Verdict:
        """Let the oracle judge, look at outputs, dead letters and repeats; say what was seen.

        Where not every end of a run was weighed, repeats are counted and not judged. Outputs of frozen members may come
        late, as no client can help; so their order is not judged either.
        """
        verdict = self.world.verdict(records=self.sent, frozen=frozen)
        self.torture.say(verdict.line())
        assert verdict.ok, verdict.report()
        if weighed:
            self._check_repeats(verdict)
        self._check_outputs(in_order=not frozen)
        return verdict

    def _check_repeats(self, verdict: Verdict) -> None:
        begun_again, handed_over = self._begun_again()
        settled_again = verdict["duplicated"].count
        uncovered = sum(cost.uncovered for cost in self.costs)
        in_flight = sum(cost.in_flight for cost in self.costs)
        self.torture.say(
            f"repeats: {settled_again} records settled again, at most {uncovered} were in no commit; "
            f"{begun_again} begun again, at most {uncovered} + {in_flight} in flight at a kill + {handed_over} moved"
        )
        assert settled_again <= uncovered
        assert begun_again <= uncovered + in_flight + handed_over

    def _begun_again(self) -> tuple[int, int]:
        """Count records that one more owner began, and those of them that a living owner had in flight when it left.

        An owner that is not dead yet commits before a partition moves on: what it had settled and another one begins
        again is not among the latter.
        """
        begun_again = handed_over = 0
        last: dict[Place, tuple[int, int]] = {}
        settled: set[tuple[Place, tuple[int, int]]] = set()
        for batch in read_history(self.world.histories):
            for each in batch.events:
                if not isinstance(each, Begun | Settled):
                    continue
                place, owner = (each.partition, each.offset), (batch.process.pid, each.epoch)
                if isinstance(each, Settled):
                    settled.add((place, owner))
                    continue
                before = last.get(place, owner)
                last[place] = owner
                if before != owner:
                    begun_again += 1
                    is_alive = batch.time_ns < self.world.deaths.get(before[0], sys.maxsize)
                    handed_over += is_alive and (place, before) not in settled
        return begun_again, handed_over

    def _check_outputs(self, *, in_order: bool) -> None:
        """Each key's answers are all there, and in order: going back is a replay, going forward leaves nothing out."""
        answers: dict[bytes | None, list[int]] = defaultdict(list)
        outputs = self.world.read(self.out)
        for found in outputs:
            answers[found.key].append(int(found.value or b""))
        for key, numbers in answers.items():
            highest = -1
            for number in numbers:
                assert number <= highest + 1 or not in_order, f"{key!r}: output {number} came after {highest}"
                highest = max(highest, number)
            expected = self._numbers[key or b""] or 1
            assert highest == expected - 1, f"{key!r}: {highest + 1} outputs, not {expected}"
        made = sum(self._numbers.values()) + STUCK
        letters = self.world.read(self.dead)
        dead = {bytes(found.key or b"") for found in letters}
        assert len(dead) + made == self.sent
        order = " in order" if in_order else ""
        self.torture.say(
            f"outputs of {len(answers)} keys{order}: {made} once, {len(outputs) - made} repeated; "
            f"{len(dead)} dead letters, {len(letters) - len(dead)} repeated"
        )


def processes_of(run: SparkProcessMember, group: str) -> dict[str, int]:
    """Answer the members' processes by their names in the history."""
    members = run.statistics()["members"].items()
    return {f"{group}-{index}-{told['pid']}": told["pid"] for index, told in members}


def wait_for_begin(run: SparkProcessMember) -> None:
    """Wait until all members of a run have begun to work."""
    eventually(run.has_begun, f"{run.name} has started", START_S_MAX)


def calls_begun_after(notes: Path, time_ns: int, pids: Collection[int]) -> list[float]:
    """Answer how long after a moment each call of some processes began, in seconds, by what the handlers noted."""
    noted = [tuple(map(int, line.split())) for line in notes.read_text(encoding="ascii").splitlines()]
    assert any(pid in pids for _, pid in noted), "these processes have called no handler at all"
    return [(at_ns - time_ns) / 1e9 for at_ns, pid in noted if at_ns > time_ns and pid in pids]


def wait_until_gone(pids: Collection[int], timeout_s: float) -> int:
    """Wait until processes are gone; answer when that was, CLOCK_MONOTONIC in ns."""
    eventually(lambda: all(map(is_gone, pids)), f"{sorted(pids)} are gone", timeout_s)
    return time.monotonic_ns()
