"""Read topics as a member of a group: one thread drives the library's consumer and reports to control.

The thread turns in circles: carry out the effects that came, then read. Everything that it learns goes to `deliver`, in
order, on this thread: Assigned, Revoked, Lost, Fetched, HighWatermarks, CommitEnded, and SourceFailed when it cannot
go on. Effects come through `do` from any thread.

How much is under way is bounded on this side. A batch has at most a fiftieth of the gate's records and about a 64th of
its bytes, and whoever takes the events says so with `taken(rooms)`, once for each call of `deliver`: when
`batches_outstanding_max` are not yet taken, nothing more is read, and of no partition is more handed over than there is
room for (see `window`). So control holds what it has room for and no more; besides, at most half as many records and an
eighth as many bytes are held back here, and the library has an eighth as many bytes in its queue and on their way.
While nothing is wanted, because all gates are closed or the other side is busy, the thread waits for effects and polls
twenty times a second for the membership's sake; such a poll brings one record at most, which is held back. So a handler
that blocks the loop for hours costs neither the membership nor memory, and what the library has fetched stays there.

Rejected: the library's pause as the gate's first resort (it throws away what was fetched; see `holdback`); `consume`
with a time-out of its own (it waits for the whole number, a quiet topic would pay with latency): here `poll` waits for
the first record and `consume` gathers for a millisecond what comes with it.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from anabranch.control.effects import Commit, Effect, Pause, Released, Resume
from anabranch.control.events import CommitEnded, Event, HighWatermarks, Lost
from anabranch.core.errors import AnabranchError, InternalError, PeerError, UsageError
from anabranch.kafka.client import (
    LIBRARY_LOGGER,
    REACH_TIMEOUT_S,
    LastError,
    is_unreachable,
    metadata,
    translated,
    translating,
)
from anabranch.kafka.committing import Committing
from anabranch.kafka.errors import UnreachableError
from anabranch.kafka.holdback import Holdback
from anabranch.kafka.intake import Intake
from anabranch.kafka.leave import leave_group
from anabranch.kafka.membership import Membership
from anabranch.kafka.offsets import parse_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from anabranch.control.effects import Room
    from anabranch.core.work import TopicPartition
    from anabranch.kafka.settings import SourceSettings
    from anabranch.pipeline.plan import ReadPlan

LOGGER: Final = logging.getLogger("anabranch.kafka")

IDLE_S: Final = 0.05
"""How long the thread waits for effects while no records are wanted."""
ANSWER_S: Final = 0.002
"""The same while a commit's answer is awaited: only polling brings it."""
WATERMARKS_S: Final = 1.0
TOPIC_WAIT_S: Final = 1.0
"""How long a topic that was just made may take to be seen."""
CONTACT_TIMEOUT_S: Final = 0.1
LEAVE_PATIENCE_S: Final = 0.3
"""How long the library has for leaving the group; it takes a few milliseconds, or five seconds."""
NOTICES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """The source cannot go on, and has ended."""

    error: AnabranchError


SourceEvent = Event | SourceFailed


class _Taken(NamedTuple):
    """So many calls of `deliver` were taken, and there is room for so much; None: for anything."""

    call: int
    rooms: Mapping[TopicPartition, Room] | None


class KafkaSource:
    """A member of a group, on a thread of its own."""

    def __init__(
        self,
        read: ReadPlan,
        group: str,
        settings: SourceSettings,
        deliver: Callable[[Sequence[SourceEvent]], None],
    ) -> None:
        """Prepare; nothing is joined before `start`. Raise UsageError when the plan or the settings cannot be right."""
        self._topics = [_pattern(read.pattern)] if read.pattern else list(read.topics)
        self._named = [] if read.pattern else [topic for topic in read.topics if not topic.startswith("^")]
        self._group = group
        self._settings = settings
        self._deliver = deliver
        self._commands: queue.SimpleQueue[Sequence[Effect | _Taken]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="anabranch-source", daemon=True)
        self._closing = False
        self._leaves = False
        self._handed = 0
        self._taken = 0
        self._watermarks_at = 0.0
        self._down_since: float | None = None
        self._received_bytes = 0
        self._last_error = LastError()
        rule = parse_rule(read.start)
        with translating("setting up the consumer", settings.connection):
            self._consumer = Consumer(self._config(), logger=LIBRARY_LOGGER)
        self._committing = Committing(self._consumer, self._commit_ended)
        self._holdback = Holdback(settings.records_max // 2, settings.bytes_max // 8)
        self._membership = Membership(
            self._consumer,
            settings,
            rule,
            self._committing,
            self._holdback,
            deliver=self._hand_over,
            serve=self._serve,
        )
        self._intake = Intake(self._consumer, settings, self._membership, self._holdback, deliver=self._hand_over)

    # From any thread.

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def do(self, effects: Sequence[Effect]) -> None:
        """Carry out Pause, Resume, Commit and Released effects soon; never blocks. Called by the thread that takes."""
        rooms = [_Taken(self._taken, each.rooms) for each in effects if isinstance(each, Resume) and each.rooms]
        self._commands.put([*rooms, *effects] if rooms else effects)

    def taken(self, rooms: Mapping[TopicPartition, Room] | None = None) -> None:
        """Take notice that the events of one call of `deliver` were taken; never blocks. Called by one thread.

        `rooms` says of how much of which partitions more may be handed over; without it there is no such limit.
        """
        self._taken += 1
        self._commands.put((_Taken(self._taken, rooms),))

    def take_no_more(self) -> None:
        """Want no partition that comes from here on; never blocks. Nothing changes for those that are here."""
        self._membership.takes = False

    def close(self, *, leaves: bool = True) -> None:
        """Carry out what `do` was given so far, leave the group and end; never blocks.

        Unless it `leaves`, a static member's place is kept until its session ends, whatever the settings say.
        """
        self._leaves = leaves
        self._closing = True
        self._membership.closing = True
        self._membership.takes = False
        self._commands.put(())

    def join(self, timeout_s: float) -> bool:
        """Wait until the source has ended; answer whether it has."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def statistics(self) -> dict[str, Any]:
        """Answer plain values."""
        membership, intake, committing = self._membership, self._intake, self._committing
        return {
            "group": self._group,
            "records": intake.records,
            "batches": intake.batches,
            "stops": intake.stops,
            "polls_exceeded": intake.polls_exceeded,
            "outstanding": self._outstanding(),
            **self._holdback.statistics(),
            "positions": {str(name): position for name, position in dict(membership.owned).items()},
            "rebalances": membership.rebalances,
            "lost_to_retention": {str(name): lost for name, lost in dict(membership.lost_to_retention).items()},
            "commits": committing.commits,
            "commit_errors": committing.errors,
            "commit_last_error": committing.last_error,
            "received_bytes": self._received_bytes if self._settings.counts_received else None,
            "unreachable_s": 0.0 if self._down_since is None else time.monotonic() - self._down_since,
            "last_error": intake.complaint or self._last_error.reason,
            "notices": list(membership.notices),
        }

    # The thread.

    def _run(self) -> None:
        failure = self._failing()
        if failure is None:
            self._shut()
            return
        if self._membership.owned:
            self._hand_over([Lost(list(self._membership.owned))])
        self._shut()
        self._hand_over([SourceFailed(failure)])

    def _failing(self) -> AnabranchError | None:
        """Read until told to close; answer why that ended early, if it did."""
        try:
            self._reach()
            membership = self._membership
            self._consumer.subscribe(
                self._topics, on_assign=membership.on_assign, on_revoke=membership.on_revoke, on_lost=membership.on_lost
            )
            while not self._closing:
                self._turn()
        except AnabranchError as error:
            return error
        except KafkaException as error:
            failure = translated(error.args[0], f"reading as group {self._group}")
            failure.__cause__ = error
            return failure
        except Exception as error:
            broken = InternalError(f"the source failed: {error!r}; please report this")
            broken.__cause__ = error
            return broken
        return None

    def _reach(self) -> None:
        """Find the cluster and the topics; raise when either is not there."""
        began_at = time.monotonic()
        timeout_s = min(REACH_TIMEOUT_S, self._settings.reach_s)
        while not self._closing:
            try:
                found = metadata(
                    self._consumer, self._settings.connection, self._last_error, timeout_s=timeout_s
                ).topics
            except UnreachableError:
                if time.monotonic() >= began_at + self._settings.reach_s:
                    raise
                continue
            missing = [topic for topic in self._named if topic not in found or not found[topic].partitions]
            if not missing or not self._settings.topics_must_exist:
                break
            if time.monotonic() >= began_at + TOPIC_WAIT_S:
                raise UsageError(f"no topic {missing[0]!r}: create it with `anabranch topics create {missing[0]}`")
            self._serve(0.1)
        self._last_error.all_down = False

    def _turn(self) -> None:
        self._serve(0)
        self._look_after(time.monotonic())
        busy = self._outstanding() >= self._settings.batches_outstanding_max
        if not busy and self._holdback.due:
            self._intake.release()
        if busy or (self._membership.owned and not self._holdback.any_open):
            self._serve(ANSWER_S if self._committing.in_flight else IDLE_S)
            self._intake.glance(hold=busy)
        else:
            self._intake.read()
        if self._membership.failure is not None:
            raise self._membership.failure

    def _look_after(self, now: float) -> None:
        self._membership.look_after(now)
        del self._membership.notices[:-NOTICES_MAX]
        if self._committing.overdue(now):
            self._committing.settle()
        if now >= self._watermarks_at:
            self._watermarks_at = now + WATERMARKS_S
            self._report_watermarks()
            self._check_contact()

    def _report_watermarks(self) -> None:
        ends: dict[TopicPartition, int] = {}
        for name in self._membership.owned:
            bounds = self._consumer.get_watermark_offsets(LibraryPartition(*name), cached=True)
            if bounds is not None and bounds[1] >= 0:
                ends[name] = bounds[1]
        if ends:
            self._hand_over([HighWatermarks(ends)])

    def _check_contact(self) -> None:
        """Notice that the cluster is back: an idle topic gives no sign of its own."""
        if self._down_since is None:
            return
        if not self._intake.in_touch:
            try:
                self._consumer.list_topics(timeout=CONTACT_TIMEOUT_S)
            except KafkaException:
                return
        self._down_since = None
        self._last_error.all_down = False

    # Effects.

    def _serve(self, timeout_s: float) -> None:
        """Carry out the effects that are there, waiting at most so long for the first."""
        try:
            effects = self._commands.get(timeout=timeout_s) if timeout_s > 0 else self._commands.get_nowait()
            while True:
                for effect in effects:
                    self._carry_out(effect)
                effects = self._commands.get_nowait()
        except queue.Empty:
            return

    def _carry_out(self, effect: Effect | _Taken) -> None:
        if isinstance(effect, _Taken):
            self._holdback.told(effect.call, effect.rooms)
        elif isinstance(effect, Commit):
            self._commit(effect)
        elif isinstance(effect, Pause):
            self._holdback.close(effect.partitions)
        elif isinstance(effect, Resume):
            resumed = self._holdback.open(effect.partitions)
            if resumed:
                self._consumer.resume([LibraryPartition(*name) for name in resumed])
        elif isinstance(effect, Released):
            self._membership.released(effect.partitions)

    def _commit(self, commit: Commit) -> None:
        gone = [name for name in commit.positions if name not in self._membership.owned]
        if self._membership.in_callback or self._closing:
            self._committing.make(commit, gone)
        else:
            self._committing.begin(commit, gone)

    def _commit_ended(self, event: CommitEnded) -> None:
        self._hand_over([event])
        if event.fenced:
            self._membership.fenced(time.monotonic())

    # Reporting.

    def _outstanding(self) -> int:
        return self._handed - self._taken

    def _hand_over(self, events: Sequence[SourceEvent]) -> None:
        self._handed += 1
        self._holdback.call = self._handed + 1
        try:
            self._deliver(events)
        except Exception:  # nobody takes the events any more: there is no one to tell, and nothing to go on for
            LOGGER.exception("the source ends: its events are not taken any more")
            self.close()

    # The library's callbacks.

    def _config(self) -> dict[str, Any]:
        config = self._settings.consumer_config(self._group)
        config.update({"error_cb": self._on_error, "on_commit": self._on_commit})
        if self._settings.counts_received:
            config["stats_cb"] = self._on_statistics
        return config

    def _on_commit(self, error: KafkaError | None, answers: Sequence[LibraryPartition]) -> None:
        self._committing.answered(error, answers)

    def _on_error(self, error: KafkaError) -> None:
        """Take what the library reports apart from any call."""
        self._last_error(error)
        if error.fatal():
            self._membership.failure = translated(error, f"reading as group {self._group}")
        if error.name() == "_ALL_BROKERS_DOWN" or is_unreachable(error):
            self._intake.in_touch = False
            self._down_since = self._down_since or time.monotonic()

    def _on_statistics(self, text: str) -> None:
        self._received_bytes = int(json.loads(text)["rx_bytes"])

    # The end.

    def _shut(self) -> None:
        """Answer what is in flight, leave the group, free a static member's place."""
        self._closing = self._membership.closing = True
        self._membership.takes = False
        instance = self._settings.instance_id
        try:
            self._serve(0)
            self._committing.settle()
            member = str(self._consumer.memberid() or "")
            self._close_consumer(member if instance is None else "")
            if instance is not None and self._settings.leave_static and self._leaves:
                leave_group(self._settings.connection, self._group, member, instance)
        except (KafkaException, PeerError, RuntimeError) as error:
            self._last_error.reason = str(error)
            LOGGER.warning("leaving group %s: %s", self._group, error)

    def _close_consumer(self, member: str) -> None:
        """Leave the group, by ourselves if the library is not heard soon: see `leave`."""
        impatient = threading.Timer(LEAVE_PATIENCE_S, self._leave_apart, (member,))
        impatient.daemon = True
        if member:
            impatient.start()
        try:
            self._consumer.close()
        finally:
            impatient.cancel()

    def _leave_apart(self, member: str) -> None:
        try:
            leave_group(self._settings.connection, self._group, member, None)
        except PeerError as error:
            LOGGER.info("leaving group %s takes longer: %s", self._group, error)  # the library goes on trying


def _pattern(pattern: str) -> str:
    return pattern if pattern.startswith("^") else f"^{pattern}"
