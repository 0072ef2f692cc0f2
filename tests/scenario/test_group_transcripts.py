"""Runs the transcripts in `group/`: an event, a line of dashes, what the coordinator answers.

An event is a verb, a label that its answer carries, and fields; all have defaults (group g, session 10 s, rebalance
time-out 30 s, JoinGroup 3). Words:

    join L new=anna [member=] [instance=] [v=3] [protocols=range:A,sticky:B] [type=consumer] [session=] [rebalance=]
    sync L member= generation= [instance=] [give=anna:1,bob:2] [protocol=]
    heartbeat L member= generation= [instance=]
    leave L anna,bob,/instance,carl/instance        abandon L
    commit L [member=] [generation=-1] [instance=] orders/0=5 orders#topic-id/1=7:text      fetch [group=]
    forget orders      truncated orders/0=3      show [group=]
    wait SECONDS       time passes, and what is due happens
    log auto|fails|manual   whether stores are answered at once, refused at once, or by `stored N` and `failed N`
    restart            all is forgotten but what the log holds; `restart snapshot` goes by a snapshot
    options name=value     must come first

To write the answers of a new transcript: python tests/scenario/test_group_transcripts.py FILE, then read them.
"""

import sys
from pathlib import Path

import pytest
import transcript_text

from anabranch.broker.group.coordinator import Coordinator
from anabranch.broker.group.effects import (
    Effect,
    ReplyCommit,
    ReplyHeartbeat,
    ReplyJoin,
    ReplyLeave,
    ReplySync,
    Store,
)
from anabranch.broker.group.events import (
    Abandoned,
    Commit,
    CommitOffset,
    Event,
    ForgetTopics,
    Heartbeat,
    Join,
    Leave,
    Stored,
    Sync,
    Tick,
    Truncated,
)
from anabranch.broker.group.options import GroupOptions
from anabranch.broker.group.storage import OffsetKey, decode_group, decode_key, decode_offset
from anabranch.broker.wire.error_codes import ErrorCode

FOLDER = Path(__file__).parent / "group"
START_MS = 1_000_000


class Transcript:
    """A coordinator, a log, a clock, and the requests by their labels."""

    def __init__(self) -> None:
        self.options = GroupOptions()
        self.coordinator = Coordinator(self.options)
        self.now = 0.0
        self.labels: list[str] = []
        self.log_mode = "auto"
        self.stores: dict[int, Store] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.seen: dict[str, str] = {}

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        positional = [word for word in words if "=" not in word or "/" in word.split("=")[0]]
        fields = dict(word.split("=", 1) for word in words if word not in positional)
        answers: list[str] = getattr(self, f"do_{verb}")(*positional, **fields)
        return answers

    def step(self, event: Event) -> list[str]:
        effects = self.coordinator.step(event, self.now, START_MS + int(self.now * 1000))
        self.coordinator.check_invariants()
        lines: list[str] = []
        stores: list[Store] = []
        for effect in effects:
            lines.append(self.tell(effect))
            if isinstance(effect, Store):
                stores.append(effect)
        lines.extend(self.moves())
        for store in stores:
            self.stores[store.token] = store
            if self.log_mode == "auto":
                lines.extend(self.do_stored(str(store.token)))
            elif self.log_mode == "fails":
                lines.extend(self.do_failed(str(store.token)))
        return lines

    def token(self, label: str) -> int:
        self.labels.append(label)
        return len(self.labels) - 1

    # The words

    def do_options(self, **fields: str) -> list[str]:
        self.options = GroupOptions(**{name: type(getattr(self.options, name))(text) for name, text in fields.items()})
        self.coordinator = Coordinator(self.options)
        return []

    def do_join(self, label: str, new: str = "", v: str = "3", protocols: str = "range:", **fields: str) -> list[str]:
        event = Join(
            token=self.token(label),
            group_id=fields.get("group", "g"),
            member_id=fields.get("member", ""),
            instance_id=fields.get("instance"),
            client_id="client",
            client_host="host",
            protocol_type=fields.get("type", "consumer"),
            protocols=tuple((name, text.encode()) for name, text in pairs(protocols)),
            session_timeout_s=float(fields.get("session", "10")),
            rebalance_timeout_s=float(fields.get("rebalance", "30")),
            requires_member_id=int(v) >= 4,
            can_skip_assignment=int(v) >= 9,
            new_member_id=new,
        )
        return self.step(event)

    def do_sync(self, label: str, member: str, generation: str, give: str = "", **fields: str) -> list[str]:
        event = Sync(
            token=self.token(label),
            group_id=fields.get("group", "g"),
            generation=int(generation),
            member_id=member,
            instance_id=fields.get("instance"),
            protocol_type=fields.get("type"),
            protocol_name=fields.get("protocol"),
            assignments=tuple((name, text.encode()) for name, text in pairs(give)),
        )
        return self.step(event)

    def do_heartbeat(self, label: str, member: str, generation: str, **fields: str) -> list[str]:
        group_id = fields.get("group", "g")
        return self.step(Heartbeat(self.token(label), group_id, int(generation), member, fields.get("instance")))

    def do_leave(self, label: str, names: str, group: str = "g") -> list[str]:
        parts = [name.partition("/") for name in names.split(",")]
        members = tuple((member_id, instance_id or None, None) for member_id, _, instance_id in parts)
        return self.step(Leave(self.token(label), group, members))

    def do_commit(self, label: str, *offsets: str, **fields: str) -> list[str]:
        event = Commit(
            token=self.token(label),
            group_id=fields.get("group", "g"),
            generation=int(fields.get("generation", "-1")),
            member_id=fields.get("member", ""),
            instance_id=fields.get("instance"),
            offsets=tuple(offset(text) for text in offsets),
        )
        return self.step(event)

    def do_fetch(self, group: str = "g") -> list[str]:
        found = sorted(self.coordinator.fetch_offsets(group).items())
        return [f"{topic}/{partition}={one.position}:{one.metadata}" for (topic, partition), one in found] or [
            "nothing"
        ]

    def do_forget(self, *topics: str) -> list[str]:
        return self.step(ForgetTopics(topics))

    def do_truncated(self, *places: str) -> list[str]:
        ends = [offset(text) for text in places]
        return self.step(Truncated(tuple((one.topic, one.partition, one.position) for one in ends)))

    def do_abandon(self, label: str) -> list[str]:
        return self.step(Abandoned(len(self.labels) - 1 - self.labels[::-1].index(label)))

    def do_wait(self, seconds: str) -> list[str]:
        end = self.now + float(seconds)
        lines: list[str] = []
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            lines.extend(f"@{self.now:g} {line}" for line in self.step(Tick()))
        self.now = end
        return lines

    def do_log(self, mode: str) -> list[str]:
        self.log_mode = mode
        return []

    def do_stored(self, number: str) -> list[str]:
        self.log.extend(self.stores.pop(int(number)).entries)
        return self.step(Stored(int(number), None))

    def do_failed(self, number: str) -> list[str]:
        del self.stores[int(number)]
        return self.step(Stored(int(number), ErrorCode.KAFKA_STORAGE_ERROR))

    def do_restart(self, source: str = "log") -> list[str]:
        snapshot = self.coordinator.snapshot()
        self.coordinator = Coordinator(self.options)
        self.stores.clear()
        if source == "snapshot":
            self.coordinator.load_snapshot(snapshot)
        self.coordinator.restore([] if source == "snapshot" else self.log, self.now, START_MS + int(self.now * 1000))
        self.coordinator.check_invariants()
        return self.moves()

    def do_show(self, group: str = "g") -> list[str]:
        found = self.coordinator.describe(group)
        if found is None:
            return ["Dead"]
        members = [f"{one.member_id}={one.assignment.decode()}" for one in found.members]
        return [" ".join([found.state.value, f"generation={found.generation}", f"leader={found.leader}", *members])]

    # The answers

    def moves(self) -> list[str]:
        now = {}
        for listing in self.coordinator.list_groups():
            found = self.coordinator.describe(listing.group_id)
            assert found is not None
            now[listing.group_id] = f"{found.state.value} {found.generation}"
        lines = [
            f"{name} is {now.get(name, 'Dead')}"
            for name in sorted(now | self.seen)
            if now.get(name) != self.seen.get(name)
        ]
        self.seen = now
        return lines

    def tell(self, effect: Effect) -> str:
        match effect:
            case Store(token, entries):
                return f"store {token}: " + ", ".join(tell_entry(key, value) for key, value in entries)
            case ReplyJoin(error=ErrorCode.NONE):
                listing = ",".join(f"{one.member_id}:{one.metadata.decode()}" for one in effect.members)
                text = f"NONE member={effect.member_id} generation={effect.generation} protocol={effect.protocol_name} "
                text += f"leader={effect.leader}" + (f" members={listing}" if listing else "")
                return f"{self.labels[effect.token]} {text}" + (" skip" if effect.skip_assignment else "")
            case ReplyJoin(token, error, member_id):
                return f"{self.labels[token]} {error.name} member={member_id}"
            case ReplySync(token, ErrorCode.NONE):
                return f"{self.labels[token]} NONE assignment={effect.assignment.decode()}"
            case ReplyLeave(token, error, members):
                told = [
                    f"{name or ''}{'/' + instance if instance else ''}={code.name}" for name, instance, code in members
                ]
                return " ".join([self.labels[token], error.name, *told])
            case ReplyCommit(token, error, partitions):
                told = [f"{topic}/{partition}={code.name}" for topic, partition, code in partitions]
                return " ".join([self.labels[token], error.name, *told])
            case ReplySync(token, error) | ReplyHeartbeat(token, error):
                return f"{self.labels[token]} {error.name}"


def tell_entry(key_data: bytes, value: bytes | None) -> str:
    key = decode_key(key_data)
    if isinstance(key, OffsetKey):
        where = f"{key.group_id} {key.topic}/{key.partition}"
        return f"{where} removed" if value is None else f"{where}={decode_offset(value).position}"
    if value is None:
        return f"{key.group_id} removed"
    record = decode_group(value)
    kind = "rebalancing" if record.rebalancing else "settled"
    members = " ".join(f"{one.member_id}={one.assignment.decode()}" for one in record.members)
    return f"{key.group_id} {kind} generation={record.generation} {members}".rstrip()


def pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (part.partition(":") for part in text.split(",") if part)]


def offset(text: str) -> CommitOffset:
    where, _, what = text.partition("=")
    topic, _, partition = where.partition("/")
    position, _, metadata = what.partition(":")
    topic, _, topic_id = topic.partition("#")
    return CommitOffset(topic, int(partition), int(position), 0, metadata, topic_id.encode().ljust(16, b"\0"))


def replay(text: str) -> str:
    """Run a transcript and write it again with the answers that came."""
    return transcript_text.replay(text, Transcript().run)


FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_coordinator_answers_as_the_transcript_says(path: Path) -> None:
    """Every interleaving that was written down plays out as written, and the invariants hold after each step."""
    text = path.read_text()
    assert replay(text) == text


def test_there_are_transcripts_and_a_wrong_answer_is_noticed() -> None:
    """The runner has teeth: a transcript whose answer is changed does not compare equal."""
    assert len(FILES) >= 15
    text = (FOLDER / "two_members.txt").read_text()
    wrong = text.replace("generation=1", "generation=7", 1)
    assert wrong != text
    assert replay(wrong) != wrong


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(replay(Path(name).read_text()))
