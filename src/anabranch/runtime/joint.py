"""Where source, plane, engine and sink meet: events go into the plane, its effects to those who do them.

Everything here happens on one loop thread, so the plane needs no lock. A batch of events shares one reading of the
clock. After each batch one timer is armed with the plane's next deadline; an earlier timer that is armed already is
left as it is and finds nothing to do, which is cheaper than moving it with every batch.

What goes wrong in here is a fault of ours (the engine has caught what handlers raise): it is told once, to `ended`, and
nothing more is done. The history is told what is settled before the commit that covers it leaves, and what is committed
when the coordinator has answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from anabranch.control.effects import (
    Cancel,
    Commit,
    DeadLetter,
    Halt,
    Pause,
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
    Fetched,
    Lost,
    Revoked,
    Tick,
)
from anabranch.core import history
from anabranch.core.errors import Halted, InternalError
from anabranch.kafka.source import SourceFailed
from anabranch.runtime.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from anabranch.control.effects import Effect
    from anabranch.control.events import Event
    from anabranch.control.plane import Plane
    from anabranch.core.work import Completion, Delivery, TopicPartition
    from anabranch.engine.port import Engine
    from anabranch.kafka.sink import KafkaSink
    from anabranch.kafka.source import KafkaSource, SourceEvent
    from anabranch.pipeline.plan import Plan
    from anabranch.runtime.settings import RunSettings

LOGGER: Final = logging.getLogger("anabranch.run")
TIMER_S_MIN: Final = 0.001
"""A loop's timers are no finer; a shorter delay would fire before its time and find nothing due."""


@dataclass(slots=True)
class Parts:
    """What is joined."""

    plane: Plane
    engine: Engine
    source: KafkaSource
    sink: KafkaSink


class Joint:
    """Routes events and effects, on the loop."""

    def __init__(self, plan: Plan, settings: RunSettings, ended: Callable[[Result], None]) -> None:
        self._group = plan.name
        self._ordering_key = plan.read.ordering_key
        self._member = settings.member
        self._recorder = settings.recorder
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._failed = False
        self._leaving = False
        self._commits: dict[int, Commit] = {}  # sent and not answered, by number
        self._rare: dict[type[Any], Callable[[Any], None]] = {
            Cancel: self._do_cancel,
            DeadLetter: self._do_dead_letter,
            Pause: self._do_at_source,
            Resume: self._do_at_source,
            Released: self._do_at_source,
            Commit: self._do_commit,
            Settled: self._do_settled,
            Halt: self._do_halt,
            Stopped: self._do_stopped,
        }
        self.parts: Parts
        self.assigned: set[TopicPartition] = set()
        self.answered: asyncio.Future[None] = self._loop.create_future()
        """Resolved when no commit is under way."""
        self.stopped: asyncio.Future[bool] = self._loop.create_future()
        """Resolved when the plane has stopped; whether all that had begun was brought to its end."""

    # ── what happens ──

    def on_source(self, events: Sequence[SourceEvent]) -> None:
        """Take what the consumer thread learned, in its order."""
        try:
            now = time.monotonic()
            for event in events:
                if isinstance(event, SourceFailed):
                    self._ended(Result.of_error(event.error))
                elif self._leaving or self._failed:
                    self._wave_through(event)
                else:
                    self._do(self.parts.plane.step(self._noted(event), now))
            self.parts.source.taken(self.parts.plane.rooms(self._concerned(events)))
            self._arm(now)
        except Exception as error:
            self.fail(error)

    def on_completed(self, completions: list[Completion]) -> None:
        """Take calls that ended."""
        self.step(Completed(completions))

    def on_delivered(self, deliveries: list[Delivery]) -> None:
        """Take outputs and dead letters that were acknowledged or refused."""
        self.step(Delivered(deliveries))

    def step(self, event: Event) -> None:
        """Take one step of the plane and do what it wants done."""
        if self._leaving or self._failed:
            return
        try:
            now = time.monotonic()
            self._do(self.parts.plane.step(event, now))
            self._arm(now)
        except Exception as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the run because of a fault of ours, told once."""
        if self._failed:
            return
        self._failed = True
        LOGGER.error("the run ends because of a fault in anabranch itself", exc_info=error)
        failure = InternalError(f"{type(error).__name__}: {error}; this is a fault in anabranch: please report it")
        failure.__cause__ = error
        self._ended(Result.of_error(failure))

    # ── ending ──

    def pause_all(self) -> None:
        """Have the source fetch nothing more."""
        if self.assigned:
            self.parts.source.do([Pause(sorted(self.assigned))])

    async def commits_answered(self, timeout_s: float) -> bool:
        """Wait until no commit is under way; answer whether that is so."""
        if self._commits:
            self.answered = self._loop.create_future()
            await asyncio.wait([self.answered], timeout=timeout_s)
        return not self._commits

    def leave(self) -> None:
        """Believe the plane no longer: from here on revokes are waved through, and nothing is begun or committed."""
        self._leaving = True
        if self._timer is not None:
            self._timer.cancel()

    # ── doing ──

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Submit):
                self.parts.engine.submit(effect.tasks)
            elif isinstance(effect, Write):
                self.parts.sink.write(effect.tasks)
            else:
                self._rare[type(effect)](effect)

    def _do_cancel(self, effect: Cancel) -> None:
        self.parts.engine.cancel(effect.tasks)

    def _do_dead_letter(self, effect: DeadLetter) -> None:
        self.parts.sink.dead_letter(effect, self._group)

    def _do_at_source(self, effect: Pause | Resume | Released) -> None:
        self.parts.source.do([effect])

    def _do_commit(self, effect: Commit) -> None:
        self._commits[effect.number] = effect
        self.parts.source.do([effect])

    def _do_settled(self, effect: Settled) -> None:
        member, how = self._member, effect.how
        self._recorder.record(
            [
                history.Settled(member, task.epoch, record.topic, record.partition, record.offset, how)
                for task in effect.tasks
                for record in (task.record,)
            ]
        )

    def _do_halt(self, effect: Halt) -> None:
        error = Halted(effect.reason)
        error.__cause__ = effect.cause
        self._ended(Result.of_error(error))

    def _do_stopped(self, effect: Stopped) -> None:
        if not self.stopped.done():
            self.stopped.set_result(effect.complete)

    # ── time ──

    def _arm(self, now: float) -> None:
        """Have the plane step again when it wants to."""
        deadline = self.parts.plane.next_deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(TIMER_S_MIN, deadline - now)
        self._timer_at = now + delay_s
        self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.step(Tick())

    # ── what the source tells ──

    def _concerned(self, events: Sequence[SourceEvent]) -> Iterable[TopicPartition]:
        """Give the partitions of which there may be more or less room now: when some come or go, all of them."""
        if any(isinstance(event, Assigned | Revoked | Lost) for event in events):
            return self.assigned
        return [event.partition for event in events if isinstance(event, Fetched)]

    def _noted(self, event: Event) -> Event:
        """Keep what this side needs to know of the consumer's news, and say what people want to hear."""
        if isinstance(event, Fetched):
            return event if self._ordering_key is None else self._with_keys(event)
        if isinstance(event, Assigned):
            self.assigned.update(event.starts)
            LOGGER.info("assigned %s", _names(event.starts))
        elif isinstance(event, Revoked):
            LOGGER.info("revoked %s", _names(event.partitions))
            self.assigned.difference_update(event.partitions)
        elif isinstance(event, Lost):
            LOGGER.warning(
                "lost %s: what was not committed is repeated by whoever has them next", _names(event.partitions)
            )
            self.assigned.difference_update(event.partitions)
        elif isinstance(event, CommitEnded):
            self._note_committed(event)
        return event

    def _with_keys(self, event: Fetched) -> Fetched:
        """Add the ordering keys where these are not the records' own."""
        assert self._ordering_key is not None
        return replace(event, keys=[self._ordering_key(record) for record in event.records])

    def _wave_through(self, event: Event) -> None:
        """Keep a source that leaves from waiting for us."""
        if isinstance(event, Revoked):
            self.parts.source.do([Released(event.partitions)])

    def _note_committed(self, event: CommitEnded) -> None:
        refused = {str(partition): error for partition, error in event.errors.items() if error is not None}
        if refused:
            LOGGER.warning("the commit was refused, it is tried again: %s", refused)
        commit = self._answered(event)
        if not self._commits and not self.answered.done():
            self.answered.set_result(None)
        if commit is not None and self._recorder.enabled:
            self._recorder.record(
                [
                    history.Committed(self._member, self._group, *partition, position.position)
                    for partition, position in commit.positions.items()
                    if event.errors.get(partition, "not answered") is None
                ]
            )

    def _answered(self, event: CommitEnded) -> Commit | None:
        """Give the commit that is answered. Answers come in order: what is older and unanswered was lost with us."""
        number = -1 if event.number is None else event.number
        commit = self._commits.get(number)
        self._commits = {each: sent for each, sent in self._commits.items() if each > number}
        return commit


def _names(partitions: Any) -> str:
    return ", ".join(str(each) for each in sorted(partitions)) or "nothing"
