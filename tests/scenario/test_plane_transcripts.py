"""Runs the transcripts in `plane/`: an event, a line of dashes, what the plane wants done and how far it is.

A record is named by its offset: `99` is orders/0 offset 99 in epoch 1, `99#2` the same in epoch 2, `orders/1:99` is
another partition's. Words:

    policy name=value…     must come first: steps=charge,ship concurrency= ordering= null_key_ordered= attempts= delay=
                           max= factor= jitter= age= poison= fatal= transient= (names of exceptions) breaker=on
                           calls= keys= probe= probe_max= records= bytes= count= interval= min_interval= letters=TOPIC
                           ratio= window= run= carryover=off. The breaker is off unless switched on; jitter is 0.
    assigned orders/0 orders/1=50 [at=99] [id=topic-id] [log_end=] [metadata=TEXT | carries=101-102@0,105@0]
    fetched orders/0 99:alice 100:bob 101:- 102:alice@3 [position=]   offset, key (- is none), leader epoch
    fetched orders/0 100..199:key                          a hundred records with keys key100, key101…
    completed 99 done | out | filtered | cancelled | Exception[:message] | after=5[, 100 …]
    completed all …        every call that runs, in the order of submission
    delivered 99 [refused:text][, …]
    revoked orders/0 in=5      lost orders/0      stop in=30      ends orders/0=200
    answer [1] [refused:text | fenced | orders/0=text]     to a commit; `commits auto` answers each at once
    wait SECONDS           time passes, and what is due happens
    why                    show [running|totals|gates|rooms|errors]

To write the answers of a new transcript: python tests/scenario/test_plane_transcripts.py FILE, then read them.
"""

import builtins
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import transcript_text

from anabranch.control.carryover import decode, encode
from anabranch.control.effects import (
    Cancel,
    Commit,
    DeadLetter,
    Effect,
    Halt,
    Pause,
    Position,
    Released,
    Resume,
    Settled,
    Stopped,
    Submit,
    Write,
)
from anabranch.control.events import (
    Assigned,
    CommitEnded,
    Completed,
    Delivered,
    Event,
    Fetched,
    HighWatermarks,
    Lost,
    Revoked,
    Start,
    Stop,
    Tick,
)
from anabranch.control.leader_epochs import Run
from anabranch.control.plane import Plane
from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.core import errors, policies
from anabranch.core.records import Record
from anabranch.core.work import FILTERED, Completion, Delivery, Output, Task, TopicPartition

FOLDER = Path(__file__).parent / "plane"
HOME = TopicPartition("orders", 0)
OUTPUT = Output("receipts", None, b"receipt", ())
FAR = 2**40
TOTALS = (
    "handled",
    "filtered",
    "dead",
    "retries",
    "skipped",
    "late",
    "unknown",
    "abandoned",
    "commits_refused",
    "fenced_calls",
)


class Transcript:
    """A plane, a clock, and the tasks by their labels."""

    def __init__(self) -> None:
        self.now = 0.0
        self.plane = Plane(make_policy({}))
        self.tasks: dict[str, Task] = {}
        self.running: list[str] = []
        self.auto_commits = False
        self.commits: dict[int, Commit] = {}
        self.progress: dict[TopicPartition, str] = {}

    def run(self, line: str) -> list[str]:
        verb, _, rest = line.partition(" ")
        answers: list[str] = getattr(self, f"do_{verb}")(rest.strip())
        return answers

    def step(self, event: Event) -> list[str]:
        effects = self.plane.step(event, self.now)
        self.plane.check_invariants()
        lines = [line for effect in effects for line in self.tell(effect)] + self.moves()
        if self.auto_commits:
            for effect in effects:
                if isinstance(effect, Commit):
                    lines.extend(self.do_answer(str(effect.number)))
        return lines

    # The words

    def do_policy(self, rest: str) -> list[str]:
        self.plane = Plane(make_policy(fields_of(rest)))
        return []

    def do_commits(self, rest: str) -> list[str]:
        self.auto_commits = rest == "auto"
        return []

    def do_assigned(self, rest: str) -> list[str]:
        words, fields = words_of(rest)
        starts = {}
        for word in words:
            name, _, at = word.partition("=")
            position = int(at or fields.get("at", "0"))
            metadata = fields.get("metadata", "")
            if "carries" in fields:
                runs = [run_of(text) for text in fields["carries"].split(",")]
                metadata = encode(runs, committable=position, topic_id=fields.get("id", ""))
            log_end = int(fields.get("log_end", FAR))
            starts[partition_of(name)] = Start(position, metadata, fields.get("id", ""), 0, log_end)
        return self.step(Assigned(starts))

    def do_fetched(self, rest: str) -> list[str]:
        words, fields = words_of(rest)
        partition = partition_of(words[0])
        records = [record for word in words[1:] for record in records_of(partition, word)]
        position = int(fields.get("position", records[-1].offset + 1 if records else 0))
        return self.step(Fetched(partition, records, position))

    def do_completed(self, rest: str) -> list[str]:
        if rest.startswith("all "):
            rest = ", ".join(f"{label} {rest[4:]}" for label in self.running)
        completions = []
        for part in rest.split(", "):
            label, _, outcome = part.partition(" ")
            completions.append(completion_of(self.tasks[label], outcome))
            if label in self.running:
                self.running.remove(label)
        return self.step(Completed(completions))

    def do_delivered(self, rest: str) -> list[str]:
        deliveries = []
        for part in rest.split(", "):
            label, _, outcome = part.partition(" ")
            error = errors.PeerError(outcome.partition(":")[2]) if outcome else None
            deliveries.append(Delivery(self.tasks[label], error))
        return self.step(Delivered(deliveries))

    def do_revoked(self, rest: str) -> list[str]:
        words, fields = words_of(rest)
        return self.step(Revoked([partition_of(word) for word in words], self.now + float(fields["in"])))

    def do_lost(self, rest: str) -> list[str]:
        return self.step(Lost([partition_of(word) for word in rest.split()]))

    def do_stop(self, rest: str) -> list[str]:
        return self.step(Stop(self.now + float(fields_of(rest)["in"])))

    def do_ends(self, rest: str) -> list[str]:
        places = [word.partition("=") for word in rest.split()]
        return self.step(HighWatermarks({partition_of(name): int(end) for name, _, end in places}))

    def do_answer(self, rest: str) -> list[str]:
        first, _, outcome = rest.partition(" ")
        if not first.isdigit():
            first, outcome = str(next(iter(self.commits))), rest
        number = int(first)
        commit = self.commits.pop(number)
        answer: dict[TopicPartition, str | None] = dict.fromkeys(commit.positions)
        if outcome.startswith("refused"):
            answer = dict.fromkeys(commit.positions, outcome.partition(":")[2])
        elif "=" in outcome:
            name, _, text = outcome.partition("=")
            answer[partition_of(name)] = text
        return self.step(CommitEnded(answer, outcome == "fenced", number))

    def do_wait(self, rest: str) -> list[str]:
        end = self.now + float(rest)
        lines: list[str] = []
        while (deadline := self.plane.next_deadline()) is not None and deadline <= end:
            assert deadline > self.now or lines == [], "a deadline that was served is not asked for again"
            self.now = max(self.now, deadline)
            lines.extend(f"@{self.now:g} {line}" for line in self.step(Tick()))
        self.now = end
        return lines + [f"@{self.now:g} {line}" for line in self.step(Tick())]

    def do_why(self, rest: str) -> list[str]:
        return self.plane.why()

    def do_show(self, rest: str) -> list[str]:
        found = self.plane.statistics()
        if rest == "gates":
            return [f"{one.topic}/{one.partition} {one.gate} {one.held}/{one.records_max}" for one in found.partitions]
        if rest == "totals":
            return [" ".join(f"{name}={getattr(found, name)}" for name in TOTALS if getattr(found, name)) or "nothing"]
        if rest == "rooms":
            names = [TopicPartition(one.topic, one.partition) for one in found.partitions]
            return [f"{name} {room.records} records" for name, room in self.plane.rooms(names).items()]
        if rest == "errors":
            return [f"{one.name} {one.breaker_last_error or '-'}" for one in found.steps]
        lanes = [f"ready={one.ready_lanes} waiting={one.waiting_lanes}" for one in found.steps]
        return [
            f"{one.name} running={one.running} {text} breaker={one.breaker}"
            for one, text in zip(found.steps, lanes, strict=True)
        ]

    # The answers

    def moves(self) -> list[str]:
        now = {}
        for one in self.plane.statistics().partitions:
            blocker = "-" if one.blocker_offset is None else one.blocker_offset
            now[TopicPartition(one.topic, one.partition)] = (
                f"committable={one.committable} ahead={one.ahead} blocker={blocker}"
            )
        changed = [partition for partition, text in now.items() if self.progress.get(partition) != text]
        self.progress = now
        return [("" if partition == HOME else f"{partition} ") + now[partition] for partition in changed]

    def label(self, task: Task) -> str:
        where = TopicPartition(task.record.topic, task.record.partition)
        text = ("" if where == HOME else f"{where}:") + str(task.record.offset)
        label = text + (f"#{task.epoch}" if task.epoch > 1 else "")
        self.tasks[label] = task
        return label

    def submitted(self, task: Task) -> str:
        label = self.label(task)
        self.running.append(label)
        key = task.lane.key
        lane = key.decode() if isinstance(key, bytes) else {None: "all"}.get(key, "-")
        steps = self.plane.policy.steps
        step = f" step={steps[task.step].name}" if len(steps) > 1 else ""
        return f"submit {label} lane={lane}{step} attempt={task.attempt}"

    def tell(self, effect: Effect) -> list[str]:
        match effect:
            case Submit(tasks):
                lines = [self.submitted(task) for task in tasks]
                return lines if len(lines) <= 8 else [*lines[:3], f"submit {len(lines) - 4} more", lines[-1]]
            case Cancel(tasks):
                return [f"cancel {self.label(task)}" for task in tasks]
            case Write(tasks):
                return [f"write {self.label(task)}" for task in tasks]
            case DeadLetter(task, cause, step):
                return [f"dead letter {self.label(task)} step={step} attempts={task.attempt} {type(cause).__name__}"]
            case Pause(partitions) | Resume(partitions) | Released(partitions):
                return [f"{type(effect).__name__.lower()} {' '.join(map(str, partitions))}"]
            case Commit(positions, number):
                self.commits[number] = effect
                return [
                    f"commit {number}: " + " ".join(f"{name}={tell_position(one)}" for name, one in positions.items())
                ]
            case Halt(reason):
                return [f"halt: {reason}"]
            case Stopped(complete):
                return ["stopped, complete" if complete else "stopped, not complete"]
            case Settled(tasks, how):
                return [f"settled {' '.join(map(self.label, tasks))} {how}"]


def tell_position(one: Position) -> str:
    text = str(one.position) + (f"@{one.leader_epoch}" if one.leader_epoch >= 0 else "")
    carryover = decode(one.metadata, topic_id=topic_id_of(one), position=one.position, log_start=0, log_end=FAR)
    runs = ",".join(f"{run.first}-{run.last}" if run.last > run.first else f"{run.first}" for run in carryover.runs)
    return text + (f" carries {runs}" if runs else "")


def topic_id_of(one: Position) -> str:
    """Transcripts use one topic id or none."""
    is_plain = not decode(one.metadata, topic_id="", position=one.position, log_start=0, log_end=FAR).reason
    return "" if is_plain else "new"


def make_policy(fields: dict[str, str]) -> PlanePolicy:
    def number(name: str, default: Any) -> Any:
        text = fields.get(name)
        return default if text is None else None if text == "none" else type(default or 1.0)(text)

    def kinds(name: str, default: tuple[type[BaseException], ...] = ()) -> tuple[type[BaseException], ...]:
        return tuple(exception(one) for one in fields[name].split(",")) if name in fields else default

    retry = policies.Retry(
        attempts=number("attempts", 5),
        initial_s=number("delay", 1.0),
        max_s=number("max", 60.0),
        factor=number("factor", 2.0),
        jitter=number("jitter", 0.0),
        age_s_max=number("age", None),
        poison=kinds("poison"),
        transient=kinds("transient", (Exception,)),
        fatal=kinds("fatal"),
    )
    breaker = policies.Breaker(
        enabled=fields.get("breaker") == "on",
        calls_min=number("calls", 20),
        keys_min=number("keys", 5),
        probe_s=number("probe", 1.0),
        probe_s_max=number("probe_max", 30.0),
    )
    letters = policies.DeadLetters(
        fields.get("letters", "dead"), number("ratio", 0.5), number("window", 1000), number("run", 100)
    )
    names = fields.get("steps", "charge").split(",")
    return PlanePolicy(
        steps=tuple(StepPolicy(name, number("concurrency", 256), retry, breaker) for name in names),
        ordering=policies.Ordering(fields.get("ordering", "key")),
        null_key_ordered="null_key_ordered" in fields,
        commit=policies.Commit(number("interval", 1000.0), number("count", 1000), number("min_interval", 0.1)),
        gate=policies.Gate(number("records", 50_000), number("bytes", 64 * 1024 * 1024)),
        dead_letters=letters if "letters" in fields else None,
        carryover=fields.get("carryover") != "off",
    )


def words_of(text: str) -> tuple[list[str], dict[str, str]]:
    """Split into words and name=value fields; `orders/1=50` is a word."""
    parts = text.split()
    words = [part for part in parts if "=" not in part or "/" in part.split("=")[0]]
    return words, dict(part.split("=", 1) for part in parts if part not in words)


def fields_of(text: str) -> dict[str, str]:
    return words_of(text)[1]


def partition_of(name: str) -> TopicPartition:
    topic, _, partition = name.partition("/")
    return TopicPartition(topic, int(partition))


def run_of(text: str) -> Run:
    span, _, epoch = text.partition("@")
    first, _, last = span.partition("-")
    return Run(int(first), int(last or first), int(epoch or 0))


def records_of(partition: TopicPartition, text: str) -> list[Record]:
    place, _, rest = text.partition(":")
    key, _, epoch = rest.partition("@")
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", place):
        first, last = map(int, match.groups())
        return [
            record for offset in range(first, last + 1) for record in records_of(partition, f"{offset}:{key}{offset}")
        ]
    own_key = None if key == "-" else key.encode()
    return [Record(*partition, int(place), own_key, b"value", leader_epoch=int(epoch or 0))]


def exception(name: str) -> type[BaseException]:
    found: type[BaseException] = getattr(errors, name, None) or getattr(builtins, name)
    return found


def completion_of(task: Task, outcome: str) -> Completion:
    if outcome == "cancelled":
        return Completion(task, None, None, cancelled=True)
    if outcome.startswith("after="):
        return Completion(task, None, errors.RetryAfter(float(outcome[6:])))
    values: dict[str, Any] = {"done": (), "filtered": FILTERED, "out": (OUTPUT,)}
    if outcome in values:
        return Completion(task, values[outcome], None)
    name, _, message = outcome.partition(":")
    return Completion(task, None, exception(name)(message))


def replay(text: str) -> str:
    """Run a transcript and write it again with the answers that came."""
    return transcript_text.replay(text, Transcript().run)


FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_plane_answers_as_the_transcript_says(path: Path) -> None:
    """Every interleaving that was written down plays out as written, and the invariants hold after each step."""
    text = path.read_text()
    assert replay(text) == text


def test_there_are_plane_transcripts_and_a_wrong_answer_is_noticed() -> None:
    """The runner has teeth: a transcript whose answer is changed does not compare equal."""
    assert len(FILES) >= 30
    text = (FOLDER / "slow_head.txt").read_text()
    wrong = text.replace("committable=99", "committable=100", 1)
    assert wrong != text
    assert replay(wrong) != wrong


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(replay(Path(name).read_text()))
