"""Random runs: what keeps the contract is ok, and one random fault of each kind is found by its checker."""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.history import Begun, Committed, Ended, Event, Sent, Settled
from anabranch.testing.history import History, MemoryHistory
from anabranch.testing.oracle import judge

Script = list[tuple[str, Event]]
KEYS = (None, b"", b"alice", b"bob", b"carol")
STEPS = ("one", "two")


@dataclass
class Run:
    """A dumb model of a group that keeps the contract: one partition, one owner at a time, a process per session."""

    random: Random
    script: Script = field(default_factory=list)
    keys: dict[int, bytes | None] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    position: int = 0

    def tell(self, who: str, *events: Event) -> None:
        self.script.extend((who, event) for event in events)

    def produce(self, count: int) -> None:
        offset = 0
        for _ in range(count):
            offset += self.random.choice((1, 1, 1, 3))  # holes are normal
            key = self.random.choice(KEYS)
            self.keys[offset] = key
            self.tell("producer", Sent("t", 0, offset, key, offset))

    def own(self, member: str, epoch: int, *, to_the_end: bool) -> None:
        """Run one session: repeat from the committed position or spare what is known to be settled; end or crash."""
        spared = (
            self.settled
            if self.random.random() < 0.5
            else {offset for offset in self.settled if offset < self.position}
        )
        waiting = [offset for offset in sorted(self.keys) if offset not in spared]
        turns = len(waiting) if to_the_end else self.random.randint(0, len(waiting))
        for _ in range(turns):
            lanes: dict[object, int] = {}
            for offset in waiting:
                key = self.keys[offset]
                lanes.setdefault(offset if key is None else key, offset)
            offset = self.random.choice(list(lanes.values()))
            waiting.remove(offset)
            self.run(member, epoch, offset)
            if self.random.random() < 0.3:
                self.commit(member)
        if waiting and not to_the_end and self.random.random() < 0.5:
            self.tell(
                member, Begun(member, epoch, "t", 0, waiting[0], self.keys[waiting[0]], "one")
            )  # killed in a call

    def run(self, member: str, epoch: int, offset: int) -> None:
        how = self.random.choice(("handled", "handled", "handled", "filtered", "dead"))
        steps = STEPS if how == "handled" else STEPS[: self.random.randint(0, 2)]
        for step in steps:
            attempts = self.random.choice((1, 1, 3))
            for attempt in range(1, attempts + 1):
                outcome = "done" if attempt == attempts and (how != "dead" or step != steps[-1]) else "failed"
                identity = (member, epoch, "t", 0, offset, self.keys[offset], step, attempt)
                self.tell(member, Begun(*identity), Ended(*identity, outcome=outcome))
        self.tell(member, Settled(member, epoch, "t", 0, offset, how))
        self.settled.add(offset)

    def commit(self, member: str) -> None:
        incomplete = [offset for offset in self.keys if offset not in self.settled]
        self.position = max(self.position, min(incomplete, default=max(self.keys) + 1))
        self.tell(member, Committed(member, "g", "t", 0, self.position))


def valid_run(random: Random) -> Run:
    run = Run(random)
    run.produce(random.randint(8, 30))
    for epoch in range(1, random.randint(1, 4)):
        run.own(f"a{epoch}", epoch, to_the_end=False)
    run.own("c", 9, to_the_end=True)
    run.commit("c")
    return run


def history_of(script: Script) -> History:
    parts: dict[str, MemoryHistory] = {}
    for now_ns, (who, event) in enumerate(script):
        part = parts.setdefault(who, MemoryHistory(who, pid=len(parts)))
        part.now_ns = now_ns
        part.record([event])
    return History(parts.values())


def count(script: Script, checker: str) -> int:
    return judge(history_of(script))[checker].count


randoms = st.randoms(use_true_random=False)


@given(randoms)
def test_a_run_that_keeps_the_contract_is_ok(random: Random) -> None:
    """Holes, retries, dead letters, crashes, repeats and rebalances break no rule."""
    run = valid_run(random)
    verdict = judge(history_of(run.script), records=len(run.keys))
    assert verdict.ok, verdict.report()


@given(randoms)
def test_a_forgotten_record_is_lost(random: Random) -> None:
    """Take all settlements of one record away."""
    run = valid_run(random)
    victim = random.choice(list(run.keys))
    script = [(who, event) for who, event in run.script if not (isinstance(event, Settled) and event.offset == victim)]
    assert count(script, "lost") == 1
    assert count(script, "committed_too_far") >= 1


@given(randoms)
def test_a_record_that_never_ran_is_skipped(random: Random) -> None:
    """Take every trace of one record's handling away, where a later one of its key has calls."""
    run = valid_run(random)
    run.keys |= {100: b"alice", 101: b"alice"}
    run.tell("producer", Sent("t", 0, 100, b"alice"), Sent("t", 0, 101, b"alice"))
    for offset in (100, 101):
        run.tell("c", Begun("c", 9, "t", 0, offset, b"alice", "one"), Ended("c", 9, "t", 0, offset, b"alice", "one"))
        run.tell("c", Settled("c", 9, "t", 0, offset))
    assert count(run.script, "skipped") == 0
    victim = random.choice([offset for offset, key in run.keys.items() if key == b"alice" and offset < 101])
    script = [
        (who, event)
        for who, event in run.script
        if not (isinstance(event, Begun | Ended | Settled) and event.offset == victim)
    ]
    assert count(script, "skipped") >= 1


@given(randoms)
def test_two_calls_of_a_key_that_change_places_are_reordered(random: Random) -> None:
    """Exchange two neighbouring records' handling within one session and lane."""
    run = valid_run(random)
    first, second = sorted(random.sample(range(100, 120), 2))
    pair = [
        (Begun("c", 9, "t", 0, offset, b"alice", "one"), Ended("c", 9, "t", 0, offset, b"alice", "one"))
        for offset in (first, second)
    ]
    run.tell("producer", Sent("t", 0, first, b"alice"), Sent("t", 0, second, b"alice"))
    settled = [Settled("c", 9, "t", 0, offset) for offset in (first, second)]
    good, bad = [*pair[0], *pair[1], *settled], [*pair[1], *pair[0], *settled]
    assert count([*run.script, *(("c", event) for event in good)], "reordered") == 0
    assert count([*run.script, *(("c", event) for event in bad)], "reordered") == 1


@given(randoms)
def test_a_call_that_begins_too_early_overlaps(random: Random) -> None:
    """Move the end of a call behind the beginning of the next one of its lane."""
    run = valid_run(random)
    lanes: dict[tuple[bytes, str], list[int]] = {}
    for index, (_, event) in enumerate(run.script):
        if isinstance(event, Begun) and event.key is not None and event.member == "c":
            lanes.setdefault((event.key, event.step), []).append(index)
    pairs = [pair for places in lanes.values() for pair in pairwise(places)]
    if not pairs:
        return
    early, late = random.choice(pairs)
    script = list(run.script)
    end = next(
        index
        for index in range(early, late)
        if isinstance(script[index][1], Ended) and script[index][1][:8] == script[early][1][:8]
    )
    script.insert(late, script.pop(end))  # the pop moves the later call one place down: the end is now right behind it
    assert count(script, "overlapping") == 1


@given(randoms)
def test_a_commit_above_an_incomplete_record_is_too_far(random: Random) -> None:
    """Put a commit right before the first settlement of a record that it covers."""
    run = valid_run(random)
    victim = random.choice(list(run.keys))
    place = next(i for i, (_, event) in enumerate(run.script) if isinstance(event, Settled) and event.offset == victim)
    script = [*run.script[:place], ("c", Committed("c", "other", "t", 0, victim + 1)), *run.script[place:]]
    assert count(script, "committed_too_far") == 1


@given(randoms)
def test_a_lower_commit_goes_backwards(random: Random) -> None:
    """Repeat an older position of the group at the end."""
    run = valid_run(random)
    script = [*run.script, ("a", Committed("a", "g", "t", 0, random.randrange(run.position)))]
    assert count(script, "went_backwards") == 1


@given(randoms)
def test_one_more_settlement_is_one_more_duplicate(random: Random) -> None:
    """Duplicates are counted exactly."""
    run = valid_run(random)
    again = Settled("a", 10, "t", 0, random.choice(list(run.keys)))
    assert count([*run.script, ("a", again)], "duplicated") == count(run.script, "duplicated") + 1


@given(randoms)
def test_a_settled_stranger_is_unknown(random: Random) -> None:
    """Settle an offset that no one sent."""
    run = valid_run(random)
    stranger = random.choice([offset for offset in range(200) if offset not in run.keys])
    assert count([*run.script, ("c", Settled("c", 9, "t", 0, stranger))], "unknown") == 1


@given(randoms)
def test_what_a_run_tells_about_its_keys_excuses_nothing(random: Random) -> None:
    """A run that calls all its records unordered is judged by the keys that they were sent with, to the last count."""
    run = valid_run(random)
    script = list(run.script)
    for _ in range(3):  # calls and settlements anywhere: most of these runs break several rules
        script.insert(random.randrange(len(script)), script.pop(random.randrange(len(script))))
    lies = [(who, event._replace(key=None) if isinstance(event, Begun | Ended) else event) for who, event in script]
    honest, lying = judge(history_of(script)), judge(history_of(lies))
    assert lying.line() == honest.line()
