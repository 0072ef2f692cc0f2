"""All groups of a broker: takes events, gives effects.

    effects = coordinator.step(event, now, now_ms)

`now` is monotonic and drives sessions and rebalances; `now_ms` is wall time and dates commits. Each event goes to its
group; a group comes into being with its first join or its first commit from outside, and goes when nothing of it is
left: at once if it never had a generation, at the next check otherwise, so that generations go on rising meanwhile.

Starting: `load_snapshot` (if there is one), then `restore` with the entries of the log that the snapshot may lack,
once. A snapshot has everything that was answered as stored when it was taken; entries it has already may be
replayed too.

Too many groups are answered GROUP_MAX_SIZE_REACHED: Kafka has no such limit, and this is the code that makes its
clients stop and say what is full.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from anabranch.broker.group import attending, committing, joining, stored
from anabranch.broker.group.effects import Effect, ReplyHeartbeat, ReplyJoin, ReplyLeave, ReplySync
from anabranch.broker.group.events import (
    Abandoned,
    Commit,
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
from anabranch.broker.group.invariants import check_group, check_turn
from anabranch.broker.group.machine import Group
from anabranch.broker.group.offsets import CommittedOffset
from anabranch.broker.group.options import GroupOptions
from anabranch.broker.group.states import Cause
from anabranch.broker.group.storage import Entry, Image, TopicPartition, decode_snapshot, encode_snapshot
from anabranch.broker.group.timers import Kind, Timer
from anabranch.broker.group.turn import Turn
from anabranch.broker.group.views import GroupDescription, GroupListing, GroupStatistics, describe_group
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.core.errors import InternalError

_CHECK = Timer(Kind.CHECK)


class Coordinator:
    """The machine of all groups."""

    def __init__(self, options: GroupOptions | None = None) -> None:
        self._options = options or GroupOptions()
        self._turn = Turn()
        self._groups: dict[str, Group] = {}
        self._image = Image()

    # Steps

    def step(self, event: Event, now: float, now_ms: int) -> list[Effect]:
        """Take one event and say what is to be done, in order."""
        self._turn.begin(now, now_ms)
        match event:
            case Join():
                self._join(event)
            case Sync():
                self._sync(event)
            case Heartbeat():
                self._heartbeat(event)
            case Leave():
                self._leave(event)
            case Commit():
                self._commit(event)
            case Stored():
                self._stored(event)
            case Tick():
                self._tick()
            case Abandoned():
                self._abandoned(event)
            case ForgetTopics():
                self._forget_topics(event)
            case Truncated():
                self._truncated(event)
        return self._turn.effects

    def next_deadline(self) -> float | None:
        """Say when the next `Tick` is due, on the monotonic clock."""
        return self._turn.timers.next_deadline()

    def _join(self, event: Join) -> None:
        error = self._join_refusal(event)
        if error:
            self._turn.reply(ReplyJoin(event.token, error, event.member_id))
        else:
            group = self._group(event.group_id)
            joining.join(group, event)
            self._finish(group)

    def _join_refusal(self, event: Join) -> ErrorCode:
        options = self._options
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if sum(len(name) + len(metadata) for name, metadata in event.protocols) > options.member_bytes_max:
            return ErrorCode.INVALID_REQUEST
        if not options.session_timeout_s_min <= event.session_timeout_s <= options.session_timeout_s_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if event.group_id in self._groups:
            return ErrorCode.NONE
        if event.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._room()

    def _sync(self, event: Sync) -> None:
        if any(len(assignment) > self._options.member_bytes_max for _, assignment in event.assignments):
            self._turn.reply(ReplySync(event.token, ErrorCode.INVALID_REQUEST))
            return
        group = self._groups.get(event.group_id)
        if group is None:
            self._turn.reply(ReplySync(event.token, _absent(event.group_id)))
        else:
            attending.sync(group, event)

    def _heartbeat(self, event: Heartbeat) -> None:
        group = self._groups.get(event.group_id)
        if group is None:
            self._turn.reply(ReplyHeartbeat(event.token, _absent(event.group_id)))
        else:
            attending.heartbeat(group, event)

    def _leave(self, event: Leave) -> None:
        group = self._groups.get(event.group_id)
        if group is not None:
            attending.leave(group, event)
            self._finish(group)
        elif event.group_id:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            answers = tuple((member_id, instance_id, unknown) for member_id, instance_id, _ in event.members)
            self._turn.reply(ReplyLeave(event.token, ErrorCode.NONE, answers))
        else:
            self._turn.reply(ReplyLeave(event.token, ErrorCode.INVALID_GROUP_ID))

    def _commit(self, event: Commit) -> None:
        error = ErrorCode.NONE
        if event.group_id not in self._groups:
            # A member of a group that is unknown: of one that was forgotten. It has to join again.
            error = ErrorCode.ILLEGAL_GENERATION if event.generation >= 0 else self._room()
        if error:
            self._turn.reply(committing.refused(event, error))
        else:
            group = self._group(event.group_id)
            committing.commit(group, event)
            self._finish(group)

    def _stored(self, event: Stored) -> None:
        if event.token not in self._turn.stores:
            raise InternalError(f"store {event.token} was never asked for or is answered twice: answer each store once")
        group = self._groups.get(self._turn.stores.pop(event.token))
        if group is not None and event.token in group.pending_stores:
            stored.stored(group, event.token, is_durable=not event.error)
            self._finish(group)

    def _abandoned(self, event: Abandoned) -> None:
        place = self._turn.waiting.pop(event.token, None)
        if place is not None:
            group_id, member_id = place
            group = self._groups[group_id]
            group.abandon(event.token, member_id)
            self._finish(group)

    def _forget_topics(self, event: ForgetTopics) -> None:
        topics = frozenset(event.topics)
        for group in self._groups.values():
            committing.forget_topics(group, topics)

    def _truncated(self, event: Truncated) -> None:
        log_ends: dict[TopicPartition, int] = {(topic, partition): end for topic, partition, end in event.log_ends}
        for group in self._groups.values():
            committing.cut_back(group, log_ends)

    def _tick(self) -> None:
        while (timer := self._turn.timers.take_due(self._turn.now)) is not None:
            if timer == _CHECK:
                self._check()
            else:
                group = self._groups[timer.group_id]
                group.expire(timer)
                self._finish(group)

    def _check(self) -> None:
        """Look for offsets that have expired and for groups with nothing left."""
        for group in list(self._groups.values()):
            committing.expire_offsets(group)
            if group.is_worthless():
                self._bury(group)
        if self._groups:
            self._schedule_check()

    # Groups that come and go

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id, self._options, self._turn)
            if _CHECK not in self._turn.timers:
                self._schedule_check()
        return group

    def _schedule_check(self) -> None:
        self._turn.timers.set(_CHECK, self._turn.now + self._options.offsets_check_interval_s)

    def _room(self) -> ErrorCode:
        return ErrorCode.NONE if len(self._groups) < self._options.groups_max else ErrorCode.GROUP_MAX_SIZE_REACHED

    def _finish(self, group: Group) -> None:
        """End a step of a group: store what it changed, and drop it if it came to nothing."""
        group.flush()
        if group.generation == 0 and group.is_worthless():
            self._bury(group)

    def _bury(self, group: Group) -> None:
        group.move(Cause.FORGOTTEN)
        del self._groups[group.group_id]
        if group.is_written:
            self._turn.store("", ((group.key(), None),))

    # From and to the log

    def load_snapshot(self, data: bytes) -> None:
        """Read a snapshot; `restore` must follow."""
        self._image.apply(decode_snapshot(data))

    def restore(self, entries: Iterable[Entry], now: float, now_ms: int) -> None:
        """Replay the log's entries, in their order, and let the groups go on. Once, before the first step."""
        if self._groups or self._turn.next_store > 1:
            raise InternalError("groups are restored before the first step: make a new coordinator")
        self._image.apply(entries)
        self._turn.begin(now, now_ms)
        image, self._image = self._image, Image()
        for group_id in sorted(image.groups.keys() | image.offsets.keys()):
            stored.restore(self._group(group_id), image.groups.get(group_id), image.offsets.get(group_id, {}))

    def snapshot(self) -> bytes:
        """Give everything that is durable in one piece: all stores answered so far, and none that is not."""
        entries: list[tuple[bytes, bytes]] = []
        for group in self._groups.values():
            entries.extend(group.offsets.entries())
            if group.durable is not None:
                entries.append((group.key(), group.durable[1]))
        return encode_snapshot(entries)

    # What can be seen

    def fetch_offsets(
        self, group_id: str, topics: Mapping[str, Iterable[int]] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Give the committed offsets of these partitions, or of all; what has none is left out."""
        group = self._groups.get(group_id)
        if group is None:
            return {}
        if topics is None:
            places: Iterable[TopicPartition] = group.offsets.committed
        else:
            places = ((topic, partition) for topic, partitions in topics.items() for partition in partitions)
        found = ((where, group.offsets.fetch(where)) for where in places)
        return {where: offset for where, offset in found if offset is not None}

    def committed_topics(self) -> dict[str, set[bytes]]:
        """Give the topics that groups have offsets of, with the topic ids these were committed under."""
        topics: dict[str, set[bytes]] = {}
        for group in self._groups.values():
            for (topic, _), (record, _) in group.offsets.committed.items():
                topics.setdefault(topic, set()).add(record.topic_id)
        return topics

    def describe(self, group_id: str) -> GroupDescription | None:
        """Describe a group; None for one that is not there, which Kafka calls Dead."""
        group = self._groups.get(group_id)
        return None if group is None else describe_group(group)

    def list_groups(self) -> tuple[GroupListing, ...]:
        """List all groups by name."""
        groups = (self._groups[group_id] for group_id in sorted(self._groups))
        return tuple(GroupListing(group.group_id, group.state, group.protocol_type) for group in groups)

    def statistics(self) -> GroupStatistics:
        """Count what there is."""
        groups = self._groups.values()
        return GroupStatistics(
            groups=MappingProxyType(Counter(group.state for group in groups)),
            members=sum(len(group.roster.members) for group in groups),
            pending_members=sum(len(group.roster.pending) for group in groups),
            offsets=sum(len(group.offsets.committed) for group in groups),
            requests_waiting=len(self._turn.waiting),
            stores_in_flight=len(self._turn.stores),
            timers=len(self._turn.timers),
            rebalances=self._turn.rebalances,
            evictions=self._turn.evictions,
        )

    def check_invariants(self) -> None:
        """Assert every rule that holds between two steps."""
        for group in self._groups.values():
            check_group(group)
            assert not (group.generation == 0 and group.is_worthless()), "a group that came to nothing is not kept"
        check_turn(self._turn, self._groups.values())


def _absent(group_id: str) -> ErrorCode:
    """Say what a request of a member of no group is told."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
