"""Random clients, correct ones and rogues, against a coordinator whose log fails, reorders its answers, and crashes.

The judge knows nothing of the coordinator's inside: it sees requests, replies, and what was stored, as a client and a
log would. At the end everyone behaves, and the group must come to rest with all of them in it.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from anabranch.broker.group.coordinator import Coordinator
from anabranch.broker.group.effects import (
    Effect,
    Reply,
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
)
from anabranch.broker.group.options import GroupOptions
from anabranch.broker.group.states import State
from anabranch.broker.group.storage import OffsetKey, decode_key
from anabranch.broker.wire.error_codes import ErrorCode

GROUP = "g"
SESSION_S, REBALANCE_S = 10.0, 20.0
OPTIONS = GroupOptions(offsets_retention_s=100.0, offsets_check_interval_s=30.0, group_members_max=8)
TOPICS = ("orders", "other")
OUT, JOINING, JOINED, SYNCING, STABLE = "out", "joining", "joined", "syncing", "stable"


class Judge:
    """Says whether a history of requests and replies is one that a coordinator may have."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.given: set[tuple[str, int]] = set()
        """Members and the generations they were told they are in."""
        self.generation = 0
        """The highest generation that anybody was told."""
        self.assigned_generation = 0
        """The highest generation of which anybody has an assignment."""
        self.shares: dict[int, bytes] = {}
        """Which of the leader's assignments counts in a generation: all members must have parts of the same one."""
        self.offsets: dict[tuple[str, int], tuple[int, int]] = {}
        """Acknowledged positions, with the number of the store that wrote them."""

    def asked(self, token: int) -> None:
        self.open.add(token)

    def abandoned(self, token: int) -> None:
        self.open.discard(token)

    def replied(self, reply: Reply) -> None:
        assert reply.token in self.open, "a request gets one reply, and none once it is abandoned"
        self.open.discard(reply.token)

    def joined(self, member_id: str, generation: int) -> None:
        assert generation >= self.assigned_generation, "the generation never falls below one that was handed out"
        assert generation >= self.generation, "the generation never falls"
        self.generation = generation
        self.given.add((member_id, generation))

    def synced(self, generation: int, assignment: bytes) -> None:
        assert generation == self.generation, "only the last generation has assignments"
        if assignment:
            part = assignment.partition(b"/")
            assert part[0] == str(generation).encode(), "an assignment is of the generation that asks for it"
            assert self.shares.setdefault(generation, part[2]) == part[2], "a generation has one assignment"
        self.assigned_generation = generation

    def accepted(self, member_id: str, generation: int, is_empty: bool) -> None:
        is_member = (member_id, generation) in self.given and generation == self.generation
        assert is_member or (is_empty and generation < 0), (
            "only members of this generation commit, or outsiders to nobody"
        )

    def acknowledged(self, where: tuple[str, int], position: int, store: int) -> None:
        if self.offsets.get(where, (0, 0))[1] < store:
            self.offsets[where] = (position, store)

    def forgotten(self, where: tuple[str, int], is_allowed: bool) -> None:
        assert is_allowed or where not in self.offsets, "an offset goes only with its topic, or from an empty group"
        self.offsets.pop(where, None)

    def restarted(self, generation: int) -> None:
        assert generation >= self.assigned_generation, "a restart does not undo a generation that has assignments"
        self.open.clear()
        self.generation = generation

    def buried(self) -> None:
        """Nothing was left of the group, so nothing is known of its generations."""
        self.generation = self.assigned_generation = 0
        self.given.clear()
        self.shares.clear()

    def fetched(self, found: dict[tuple[str, int], int]) -> None:
        expected = {where: position for where, (position, _) in self.offsets.items()}
        assert found == expected, "what is fetched is what was acknowledged last"

    def ended(self) -> None:
        assert not self.open, "every request is answered in the end"


@dataclass
class Client:
    """A client that does the right thing, one step at a time."""

    name: str
    instance_id: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    phase: str = OUT
    token: int | None = None
    is_leader: bool = False
    members: tuple[str, ...] = ()

    def forget(self) -> None:
        self.member_id, self.generation, self.phase, self.token = "", -1, OUT, None

    def hear(self, reply: Reply) -> None:
        if reply.token == self.token:
            self.token = None
        match reply:
            case ReplyJoin(error=ErrorCode.NONE):
                self.member_id, self.generation, self.phase = reply.member_id, reply.generation, JOINED
                self.is_leader = reply.leader == reply.member_id and not reply.skip_assignment
                self.members = tuple(one.member_id for one in reply.members)
            case ReplyJoin(error=ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id, self.phase = reply.member_id, OUT
            case ReplySync(error=ErrorCode.NONE):
                self.phase = STABLE
            case ReplyLeave():
                self.forget()
            case ReplyHeartbeat(error=ErrorCode.NONE) | ReplyCommit(error=ErrorCode.NONE):
                pass
            case _ if reply.error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
                self.forget()
            case ReplyCommit(error=ErrorCode.COORDINATOR_NOT_AVAILABLE):
                pass
            case _:
                self.phase = OUT


@dataclass
class PendingCommit:
    """A commit that the log has not answered."""

    where: tuple[str, int]
    position: int
    counts: bool = True


@dataclass
class Disk:
    """Stores in the order they were asked for, and which of them are durable."""

    stores: dict[int, Store] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    durable: set[int] = field(default_factory=set)
    base: bytes | None = None
    first: int = 0

    def entries(self) -> list[tuple[bytes, bytes | None]]:
        """Everything durable that the snapshot may lack, in the order of the log."""
        tokens = sorted(token for token in self.durable if token >= self.first)
        return [entry for token in tokens for entry in self.stores[token].entries]

    def restore(self, now: float, now_ms: int) -> Coordinator:
        coordinator = Coordinator(OPTIONS)
        if self.base is not None:
            coordinator.load_snapshot(self.base)
        coordinator.restore(self.entries(), now, now_ms)
        coordinator.check_invariants()
        return coordinator


class World(RuleBasedStateMachine):
    """The coordinator, its log, its clients, and the judge."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.counter = 0
        self.coordinator = Coordinator(OPTIONS)
        self.judge = Judge()
        self.disk = Disk()
        self.owners: dict[int, Client | None] = {}
        self.requests: dict[int, Event] = {}
        self.commits: dict[int, PendingCommit] = {}
        self.commit_stores: dict[int, int] = {}
        self.ids = ["x"]
        self.clients: list[Client] = []

    @initialize()
    def open_the_doors(self) -> None:
        self.clients = [
            Client("a", None, 3),
            Client("b", None, 5),
            Client("c", None, 9),
            Client("s", "instance-s", 5),
            Client("t", "instance-t", 9),
        ]

    # Going through

    def now_ms(self) -> int:
        return 1_000_000 + int(self.now * 1000)

    def number(self) -> int:
        self.counter += 1
        return self.counter

    def ask(self, event: Join | Sync | Heartbeat | Leave | Commit, client: Client | None) -> None:
        self.owners[event.token] = client
        self.requests[event.token] = event
        self.judge.asked(event.token)
        if client is not None:
            client.token = event.token
        self.step(event)

    def step(self, event: Event) -> None:
        found = self.coordinator.describe(GROUP)
        is_empty = found is None or found.state is State.EMPTY
        for effect in self.coordinator.step(event, self.now, self.now_ms()):
            self.see(effect, event, is_empty)
        self.coordinator.check_invariants()
        if self.coordinator.describe(GROUP) is None:
            self.judge.buried()
        fetched = self.coordinator.fetch_offsets(GROUP)
        self.judge.fetched({where: one.position for where, one in fetched.items()})

    def see(self, effect: Effect, cause: Event, is_empty: bool) -> None:
        if isinstance(effect, Store):
            self.see_store(effect, cause, is_empty)
            return
        self.judge.replied(effect)
        request = self.requests[effect.token]
        if effect.error is ErrorCode.NONE:
            if isinstance(effect, ReplyJoin):
                self.judge.joined(effect.member_id, effect.generation)
            elif isinstance(effect, ReplySync):
                assert isinstance(request, Sync)
                self.judge.synced(request.generation, effect.assignment)
        if isinstance(effect, ReplyJoin) and effect.member_id:
            self.ids = [*self.ids, effect.member_id][-12:]
        client = self.owners[effect.token]
        if client is not None:
            client.hear(effect)

    def see_store(self, store: Store, cause: Event, is_empty: bool) -> None:
        self.disk.stores[store.token] = store
        self.disk.waiting.append(store.token)
        if isinstance(cause, Commit):
            self.judge.accepted(cause.member_id, cause.generation, is_empty)
            offset = cause.offsets[0]
            self.commits[store.token] = PendingCommit((offset.topic, offset.partition), offset.position)
        for key_data, value in store.entries:
            key = decode_key(key_data)
            if isinstance(key, OffsetKey) and value is None:
                where = (key.topic, key.partition)
                is_forgotten = isinstance(cause, ForgetTopics) and key.topic in cause.topics
                self.judge.forgotten(where, is_forgotten or is_empty)
                for pending in self.commits.values():
                    pending.counts = pending.counts and not (is_forgotten and pending.where == where)

    def answer(self, token: int, is_durable: bool) -> None:
        self.disk.waiting.remove(token)
        is_removal = all(value is None for _, value in self.disk.stores[token].entries)
        if is_durable or is_removal:
            self.disk.durable.add(token)
            commit = self.commits.pop(token, None)
            if commit is not None and commit.counts:
                self.judge.acknowledged(commit.where, commit.position, token)
            self.step(Stored(token, None))
        else:
            self.commits.pop(token, None)
            self.step(Stored(token, ErrorCode.KAFKA_STORAGE_ERROR))

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.step(Tick())
        self.now = end

    # What clients do

    def join(
        self, client: Client | None, member_id: str, instance_id: str | None, version: int, metadata: bytes
    ) -> None:
        token = self.number()
        event = Join(
            token=token,
            group_id=GROUP,
            member_id=member_id,
            instance_id=instance_id,
            client_id="client",
            client_host="host",
            protocol_type="consumer",
            protocols=(("range", metadata),),
            session_timeout_s=SESSION_S,
            rebalance_timeout_s=REBALANCE_S,
            requires_member_id=version >= 4,
            can_skip_assignment=version >= 9,
            new_member_id=f"m{token}",
        )
        self.ask(event, client)

    def sync(
        self, client: Client | None, member_id: str, instance: str | None, generation: int, names: tuple[str, ...]
    ) -> None:
        token = self.number()
        shares = tuple((name, f"{generation}/{token}".encode()) for name in names)
        self.ask(Sync(token, GROUP, generation, member_id, instance, None, None, shares), client)

    def commit(self, client: Client | None, member_id: str, instance: str | None, generation: int, topic: str) -> None:
        token = self.number()
        offsets = (CommitOffset(topic, 0, token, 0, None),)
        self.ask(Commit(token, GROUP, generation, member_id, instance, offsets), client)

    def act(self, client: Client) -> None:
        """Let a correct client do what comes next."""
        if client.token is not None:
            return
        if client.phase == OUT:
            client.phase = JOINING
            self.join(client, client.member_id, client.instance_id, client.version, client.name.encode())
        elif client.phase == JOINED:
            client.phase = SYNCING
            names = client.members if client.is_leader else ()
            self.sync(client, client.member_id, client.instance_id, client.generation, names)
        elif client.phase == STABLE:
            event = Heartbeat(self.number(), GROUP, client.generation, client.member_id, client.instance_id)
            self.ask(event, client)

    @rule(data=st.data())
    def a_client_goes_on(self, data: st.DataObject) -> None:
        self.act(data.draw(st.sampled_from(self.clients)))

    @rule()
    def all_clients_go_on(self) -> None:
        for client in self.clients:
            self.act(client)

    @rule(data=st.data(), topic=st.sampled_from(TOPICS))
    def a_client_commits(self, data: st.DataObject, topic: str) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if client.token is None and client.phase == STABLE:
            self.commit(client, client.member_id, client.instance_id, client.generation, topic)

    @rule(data=st.data(), by_instance=st.booleans())
    def a_client_leaves(self, data: st.DataObject, by_instance: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if client.token is None and client.member_id:
            member_id = "" if by_instance and client.instance_id else client.member_id
            self.ask(Leave(self.number(), GROUP, ((member_id, client.instance_id, None),)), client)

    @rule(data=st.data(), is_noticed=st.booleans())
    def a_client_restarts(self, data: st.DataObject, is_noticed: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if client.token is not None:
            self.owners[client.token] = None
            if is_noticed:
                self.judge.abandoned(client.token)
                self.step(Abandoned(client.token))
        client.forget()

    @rule(
        data=st.data(),
        verb=st.sampled_from(["join", "sync", "heartbeat", "commit", "leave"]),
        shift=st.integers(-1, 1),
        instance=st.sampled_from([None, None, "instance-s", "instance-u"]),
        version=st.sampled_from([3, 5, 9]),
    )
    def a_rogue_asks(self, data: st.DataObject, verb: str, shift: int, instance: str | None, version: int) -> None:
        member_id = data.draw(st.sampled_from([*self.ids, ""]))
        generation = self.judge.generation + shift
        if verb == "join":
            self.join(None, member_id, instance, version, b"rogue")
        elif verb == "sync":
            self.sync(None, member_id, instance, generation, tuple(self.ids[::2]))
        elif verb == "heartbeat":
            self.ask(Heartbeat(self.number(), GROUP, generation, member_id, instance), None)
        elif verb == "commit":
            self.commit(None, member_id, instance, generation, "orders")
        else:
            self.ask(Leave(self.number(), GROUP, ((member_id, instance, None),)), None)

    @rule(topic=st.sampled_from(TOPICS))
    def somebody_commits_from_outside(self, topic: str) -> None:
        self.commit(None, "", None, -1, topic)

    @rule()
    def a_topic_is_deleted(self) -> None:
        self.step(ForgetTopics(("other",)))

    # What the world does

    @precondition(lambda self: self.disk.waiting)
    @rule(data=st.data(), is_durable=st.sampled_from([True, True, True, False]))
    def the_log_answers_one(self, data: st.DataObject, is_durable: bool) -> None:
        self.answer(data.draw(st.sampled_from(self.disk.waiting)), is_durable)

    @rule()
    def the_log_answers_all(self) -> None:
        while self.disk.waiting:
            self.answer(self.disk.waiting[0], is_durable=True)

    @rule(seconds=st.sampled_from([0.1, 2.0, 5.0, 11.0, 40.0, 150.0]))
    def time_passes(self, seconds: float) -> None:
        self.pass_time(seconds)

    @rule()
    def a_snapshot_is_taken(self) -> None:
        self.disk.base = self.coordinator.snapshot()
        self.disk.first = min(self.disk.waiting, default=max(self.disk.stores, default=0) + 1)

    @precondition(lambda self: not self.disk.waiting)
    @rule()
    def what_is_stored_is_what_is_there(self) -> None:
        """Snapshot and log together give the same durable state as the live coordinator has."""
        restored = self.disk.restore(self.now, self.now_ms())
        assert restored.snapshot() == self.coordinator.snapshot()
        assert restored.fetch_offsets(GROUP) == self.coordinator.fetch_offsets(GROUP)
        live, found = self.coordinator.describe(GROUP), restored.describe(GROUP)
        if live is not None and live.state is State.STABLE:
            assert found == live

    @rule()
    def the_broker_crashes(self) -> None:
        while self.disk.waiting:
            # Unanswered stores may be lost; here they all are, and nothing that was acknowledged is among them.
            token = self.disk.waiting.pop()
            commit = self.commits.pop(token, None)
            assert commit is None or commit.position not in {position for position, _ in self.judge.offsets.values()}
            is_removal = all(value is None for _, value in self.disk.stores[token].entries)
            if is_removal:
                self.disk.durable.add(token)
        self.coordinator = self.disk.restore(self.now, self.now_ms())
        self.disk = Disk(base=self.coordinator.snapshot(), first=0)
        self.judge.offsets = {where: (position, 0) for where, (position, _) in self.judge.offsets.items()}
        found = self.coordinator.describe(GROUP)
        self.judge.restarted(found.generation if found is not None else 0)
        for client in self.clients:
            if client.token is not None:
                client.token = None
                client.phase = OUT if client.phase in {JOINING, SYNCING} else client.phase

    def teardown(self) -> None:
        """In the end everyone behaves: all requests are answered and the group rests with all clients in it."""
        for _ in range(80):
            for client in self.clients:
                self.act(client)
            self.the_log_answers_all()
            self.pass_time(1.0)
        self.what_is_stored_is_what_is_there()
        self.judge.ended()
        found = self.coordinator.describe(GROUP)
        if self.clients:
            assert found is not None
            assert found.state is State.STABLE
            assert {one.member_id for one in found.members} == {client.member_id for client in self.clients}
            assert all(client.generation == found.generation for client in self.clients)
            assert self.coordinator.statistics().requests_waiting == 0


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=50, stateful_step_count=40)


def test_the_judge_sees_each_kind_of_wrong() -> None:
    """Every rule of the judge can fail: a history that breaks it is refused with its sentence."""
    join, sync = ReplyJoin(1, ErrorCode.NONE, "m"), 5

    def judge() -> Judge:
        fresh = Judge()
        fresh.asked(1)
        fresh.joined("m", sync)
        fresh.synced(sync, b"5/one")
        fresh.acknowledged(("orders", 0), 7, 3)
        return fresh

    wrongs = {
        "one reply": lambda one: (one.replied(join), one.replied(join)),
        "once it is abandoned": lambda one: (one.abandoned(1), one.replied(join)),
        "never falls below": lambda one: one.joined("m", 4),
        "generation never falls\n": lambda one: (one.joined("m", 7), one.joined("m", 6)),
        "only the last generation": lambda one: one.synced(4, b"4/one"),
        "of the generation that asks": lambda one: one.synced(5, b"4/one"),
        "has one assignment": lambda one: one.synced(5, b"5/two"),
        "only members of this generation": lambda one: (one.joined("n", 6), one.accepted("m", 5, False)),
        "or outsiders to nobody": lambda one: one.accepted("", -1, False),
        "goes only with its topic": lambda one: one.forgotten(("orders", 0), False),
        "does not undo": lambda one: one.restarted(4),
        "acknowledged last": lambda one: one.fetched({("orders", 0): 6}),
        "answered in the end": lambda one: one.ended(),
    }
    for sentence, wrong in wrongs.items():
        with pytest.raises(AssertionError, match=sentence):
            wrong(judge())
