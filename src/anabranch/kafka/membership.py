"""Which partitions are ours: the library's rebalance callbacks, and what has to be settled before a record is read.

State: `owned`, the partitions that control was told about, each with the position after what was read of it. What the
library has assigned and what is owned differ in two cases, both mended by `adopt`, which runs about once a second:

- The start of a partition could not be resolved (the coordinator has just gone away, a topic is being deleted). The
  library wants an answer, so the partition is assigned, and its records are dropped until it is adopted.
- A commit was refused because the group went on without us. Control has forgotten everything then, so do we, without
  waiting for the library's lost callback, which may never come. If it does come, there is nothing left to lose; if it
  does not, a commit that is taken proves that we are a member after all before anything is adopted.

Rules: nothing raises out of a callback, the library would abort the process; nothing is polled in one, for the same
reason. In the revoke callback only effects are served, for at most the grace and a commit. A partition that comes again
is a new ownership: Assigned is said again, and control gives it a new epoch.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from anabranch.control.events import Assigned, Event, Fetched, Lost, Revoked, Start
from anabranch.core.errors import AnabranchError, Halted, PeerError
from anabranch.core.work import TopicPartition
from anabranch.kafka.client import translated
from anabranch.kafka.committing import FENCED, Committing, commit_now
from anabranch.kafka.holdback import Batch, Holdback
from anabranch.kafka.offsets import (
    Found,
    Note,
    Resolution,
    Rule,
    note_for,
    resolve,
    truncated,
    truncated_to,
    within_log,
)
from anabranch.kafka.survey import Survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from anabranch.kafka.settings import SourceSettings

ASSIGN_S_MAX: Final = 10.0
"""How long the assign callback tries before it leaves the rest to `adopt`."""
RETRY_S: Final = 0.2
RELEASE_MARGIN_S: Final = 1.0
"""How long after the grace the plane's last word is waited for."""
ADOPT_AFTER_S: Final = 3.0
"""How long after a refused commit the library may take to say itself that all was lost."""
REPOSITION_EVERY_S: Final = 1.0


class Membership:
    """The partitions of one consumer. Used on its thread only."""

    def __init__(
        self,
        consumer: Consumer,
        settings: SourceSettings,
        rule: Rule,
        committing: Committing,
        holdback: Holdback,
        *,
        deliver: Callable[[Sequence[Event]], None],
        serve: Callable[[float], None],
    ) -> None:
        """Use `deliver` to report, and `serve` to carry out effects for at most so many seconds while in a callback."""
        self.owned: dict[TopicPartition, int] = {}
        self.revoked_in_call: set[TopicPartition] = set()
        """What was revoked since the caller last cleared it: records of one read call may stand on both sides."""
        self.in_callback = False
        self.closing = False
        self.takes = True
        """Whether partitions that come are wanted: not while we stop, where asking where they begin would only hold up
        the last commits."""
        self.failure: AnabranchError | None = None
        self.lost_to_retention: dict[TopicPartition, int] = {}
        self.notices: list[str] = []
        self.rebalances = 0
        self._consumer = consumer
        self._rule = rule
        self._settings = settings
        self._survey = Survey(consumer, settings.connection)
        self._committing = committing
        committing.note = self.note
        self._holdback = holdback
        self._deliver = deliver
        self._serve = serve
        self._notes: dict[TopicPartition, Note] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epochs of the commits at which partitions begin: with them the library notices a truncation."""
        self._draining: set[TopicPartition] = set()
        self._strays: dict[TopicPartition, _Stray] = {}
        self._repositioned_at: dict[TopicPartition, float] = {}
        self._adopt_at = 0.0

    # The library's callbacks.

    def on_assign(self, _consumer: Consumer, partitions: list[LibraryPartition]) -> None:
        """Resolve the starts of new partitions, then read them."""
        self.rebalances += 1
        with _Callback(self):
            self._assigned([TopicPartition(each.topic, each.partition) for each in partitions])

    def on_revoke(self, _consumer: Consumer, partitions: list[LibraryPartition]) -> None:
        """Let partitions drain and commit before they go."""
        names = [TopicPartition(each.topic, each.partition) for each in partitions]
        with _Callback(self):
            self._drain([name for name in names if name in self.owned])
        self._give_up(names)

    def on_lost(self, _consumer: Consumer, partitions: list[LibraryPartition]) -> None:
        """Say that partitions are gone."""
        names = [TopicPartition(each.topic, each.partition) for each in partitions]
        with _Callback(self):
            self._deliver([Lost(names)])
        self._give_up(names)

    # What the source's thread calls between polls.

    def note(self, partition: TopicPartition) -> str:
        """Return what a commit carries that has no metadata of control's."""
        return str(self._notes.get(partition, ""))

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        """Take the plane's word that partitions are drained."""
        self._draining.difference_update(partitions)

    def fenced(self, now: float) -> None:
        """Forget everything: control does, too."""
        self._disown(list(self.owned))
        self._draining.clear()
        self._adopt_at = now + ADOPT_AFTER_S

    def strayed(self, partition: TopicPartition, reason: str, now: float) -> None:
        """Take notice that the log does not have the position at which a partition was to be read."""
        if partition in self.owned:
            due = max(now, self._repositioned_at.get(partition, 0.0) + REPOSITION_EVERY_S)
            self._strays[partition] = _Stray(due, truncated_to(reason))

    def look_after(self, now: float) -> None:
        """Bring strays back, and adopt what is assigned and not owned. May raise an error of ours."""
        for name, stray in [each for each in self._strays.items() if each[1].due <= now]:
            self._repositioned_at[name] = now
            if self._reposition(name, stray.truncated_to):
                self._strays.pop(name, None)
            elif name in self._strays:
                self._strays[name] = _Stray(now + REPOSITION_EVERY_S, stray.truncated_to)
        if now >= self._adopt_at:
            self._adopt_at = now + 1.0
            self._adopt()

    def relocate(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read partitions from other positions on; what the library had fetched of them is dropped."""
        targets = [LibraryPartition(*name, position) for name, position in positions.items()]
        if self._settings.incremental:
            self._consumer.incremental_unassign(targets)
            self._consumer.incremental_assign(targets)
        else:
            elsewhere = [LibraryPartition(*each, self.owned[each]) for each in self.owned if each not in positions]
            self._consumer.assign(targets + elsewhere)
        self._consumer.resume(targets)
        stopped = self._holdback.stopped()
        if stopped and not self._settings.incremental:
            self._consumer.pause([LibraryPartition(*name) for name in stopped])

    # Assigning.

    def _assigned(self, names: list[TopicPartition]) -> None:
        starts: dict[TopicPartition, Start] = {}
        try:
            starts = self._starts_with_patience(names) if names and self.takes else {}
        finally:
            targets = [
                LibraryPartition(*name, starts[name].position, "", self._epochs.get(name, -1))
                if name in starts
                else LibraryPartition(*name, OFFSET_END)
                for name in names
            ]
            if self._settings.incremental:
                self._consumer.incremental_assign(targets)
            else:
                self._consumer.assign(targets)
            if targets:
                self._consumer.resume(targets)  # the library remembers a pause of an earlier ownership
        self._own(starts)

    def _starts_with_patience(self, names: list[TopicPartition]) -> dict[TopicPartition, Start]:
        deadline = time.monotonic() + ASSIGN_S_MAX
        while True:
            try:
                return self._starts(names)
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if _hopeless(cause):
                    raise translated(cause, "finding out where to begin") from error
                if cause.name() in FENCED or time.monotonic() > deadline or self.closing:
                    self.notices.append(f"cannot find out where to begin, trying again: {cause.str()}")
                    return {}
                self._serve(RETRY_S)

    def _starts(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, Start]:
        found = self._survey.ask(names, self._rule)
        resolutions = {name: resolve(self._rule, name, found[name], self._settings) for name in names}
        for name, resolution in resolutions.items():
            self._note(name, resolution)
        self._commit_first(resolutions, found)
        self._notes.update((name, note_for(found[name])) for name in names)
        self._epochs = {
            name: found[name].leader_epoch for name in names if resolutions[name].position == found[name].committed
        }
        return {name: _start(resolution, found[name]) for name, resolution in resolutions.items()}

    def _commit_first(
        self, resolutions: Mapping[TopicPartition, Resolution], found: Mapping[TopicPartition, Found]
    ) -> None:
        """Store starts that are new: after a crash before the first commit another one would be chosen."""
        new = {name: each for name, each in resolutions.items() if each.commit_first}
        if not new:
            return
        offsets = [LibraryPartition(*name, each.position, str(note_for(found[name]))) for name, each in new.items()]
        self._commit_now(offsets)

    def _note(self, name: TopicPartition, resolution: Resolution) -> None:
        if resolution.lost:
            self.lost_to_retention[name] = self.lost_to_retention.get(name, 0) + resolution.lost
        if resolution.refusal:
            raise Halted(resolution.refusal)
        if resolution.notice:
            self.notices.append(resolution.notice)

    def _own(self, starts: Mapping[TopicPartition, Start]) -> None:
        if not starts:
            return
        self.owned.update((name, start.position) for name, start in starts.items())
        self._holdback.own(starts)
        self._deliver([Assigned(dict(starts))])

    def _adopt(self) -> None:
        if not self.takes:
            return
        missing = [
            name
            for each in self._consumer.assignment()
            if (name := TopicPartition(each.topic, each.partition)) not in self.owned
        ]
        if not missing:
            return
        try:
            starts = self._starts(missing)
            self._prove(starts)
        except KafkaException as error:
            if _hopeless(error.args[0]):
                raise translated(error.args[0], "finding out where to begin") from error
            return
        self.relocate({name: start.position for name, start in starts.items()})
        self._own(starts)

    def _prove(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Store the positions at which we begin: only a member may."""
        offsets = [
            LibraryPartition(*name, start.position, start.metadata or self.note(name)) for name, start in starts.items()
        ]
        self._commit_now(offsets)

    def _commit_now(self, offsets: list[LibraryPartition]) -> None:
        for answer in commit_now(self._consumer, offsets):
            if answer.error is not None:
                raise KafkaException(answer.error)

    # Giving up.

    def _drain(self, names: list[TopicPartition]) -> None:
        if not names or self.closing:
            return
        self._draining = set(names)
        deadline = time.monotonic() + self._settings.grace_s
        self._deliver([Revoked(names, deadline)])
        self._committing.settle()
        while self._draining and not self.closing:
            left_s = deadline + RELEASE_MARGIN_S - time.monotonic()
            if left_s <= 0:
                self.notices.append("a revoke went on before everything was released: the grace was over")
                self._deliver([Lost(sorted(self._draining))])
                break
            self._serve(left_s)
        self._draining.clear()

    def _give_up(self, names: Sequence[TopicPartition]) -> None:
        self.revoked_in_call.update(names)
        self._disown(names)
        with _Callback(self):
            if self._settings.incremental:
                self._consumer.incremental_unassign([LibraryPartition(*name) for name in names])
            else:
                self._consumer.unassign()

    def _disown(self, names: Iterable[TopicPartition]) -> None:
        for name in names:
            self.owned.pop(name, None)
            self._notes.pop(name, None)
            self._strays.pop(name, None)
            self._holdback.disown((name,))

    # A position that the log does not have.

    def _reposition(self, name: TopicPartition, cut_to: int | None) -> bool:
        """Find out where to go on, and do; answer whether that is done."""
        try:
            found = self._survey.look(name)
        except KafkaException as error:
            if _hopeless(error.args[0]):
                raise translated(error.args[0], f"reading {name}") from error
            return False
        position = self.owned[name]
        known = self._notes[name].topic_id
        if known and found.topic_id and known != found.topic_id:
            self.notices.append(f"{name}: the topic was deleted and made again; reading begins at {found.log_start}")
            return self._start_over(name, Resolution(found.log_start, commit_first=True), found)
        if cut_to is None:
            resolution = within_log(name, position, "", found, self._settings)
        else:
            resolution = truncated(name, position, max(cut_to, found.log_start), self._settings)
        self._note(name, resolution)
        if resolution.commit_first:
            return self._start_over(name, resolution, found)
        self.relocate({name: resolution.position})
        self.owned[name] = resolution.position
        beyond = Batch(name, (), resolution.position, 0)
        if resolution.position > position and self._holdback.passing(beyond) is not None:
            self._deliver([Fetched(name, (), resolution.position)])
        return True

    def _start_over(self, name: TopicPartition, resolution: Resolution, found: Found) -> bool:
        """Begin a new ownership: what control knows about the partition is about records that no longer exist."""
        try:
            self._commit_first({name: resolution}, {name: found})
        except KafkaException as error:
            self.notices.append(f"{name}: the new start could not be stored yet: {error.args[0].str()}")
            return False
        self._disown([name])
        self._notes[name] = note_for(found)
        self.relocate({name: resolution.position})
        self._deliver([Lost([name])])
        self._own({name: _start(resolution, found)})
        return True


class _Stray(NamedTuple):
    """A partition whose position the log does not have."""

    due: float
    truncated_to: int | None
    """Where the log was cut off, if that is why."""


class _Callback:
    """The inside of a callback: nothing leaves it, what goes wrong is kept for the thread."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def __enter__(self) -> None:
        self._membership.in_callback = True

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        membership = self._membership
        membership.in_callback = False
        if isinstance(error, KafkaException):
            membership.failure = membership.failure or translated(error.args[0], "rebalancing")
        elif isinstance(error, AnabranchError):
            membership.failure = membership.failure or error
        elif isinstance(error, Exception):
            membership.failure = membership.failure or PeerError(f"rebalancing failed: {error!r}")
        return isinstance(error, Exception)


def _start(resolution: Resolution, found: Found) -> Start:
    return Start(resolution.position, resolution.metadata, found.topic_id, found.log_start, found.log_end)


def _hopeless(error: KafkaError) -> bool:
    """Tell whether asking again would get the same answer."""
    name = error.name()
    return (
        error.fatal()
        or name.endswith("AUTHORIZATION_FAILED")
        or name in {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"}
    )
