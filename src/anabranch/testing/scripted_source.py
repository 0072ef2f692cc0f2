"""A source that plays a script: what a broker would have, and what a group would do, written down as a list.

    log = ScriptedLog()
    orders = TopicPartition("orders", 0)
    script = [Give(orders), record(orders, b"alice"), Marker(orders), record(orders, b"bob"), Revoke(orders), Crash()]
    source = ScriptedSource(script, deliver, log=log)

It has the interface of `KafkaSource` and a thread of its own. Records are written to the log when the script reaches
them and handed over at once, unless the gate is closed; markers, aborted records and compacted ones are offsets without
a record. A partition that is given (again) is read from what was committed for it, so a script that ends with `Crash`
can be continued by another source with the same log, as another process would.

Faults travel with the data: a commit is refused because the script says so at that place, not because of a timer.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from anabranch.control.effects import Commit, Pause, Position, Released, Resume
from anabranch.control.events import Assigned, CommitEnded, Event, Fetched, HighWatermarks, Lost, Revoked, Start
from anabranch.testing.script import (
    Aborted,
    Await,
    Compacted,
    Crash,
    Give,
    Lose,
    Marker,
    RefuseCommits,
    Revoke,
    ScriptedLog,
    Step,
    Trim,
    Write,
    record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from anabranch.control.effects import Effect, Room
    from anabranch.core.work import TopicPartition

__all__ = [
    "Aborted",
    "Await",
    "Compacted",
    "Crash",
    "Give",
    "Lose",
    "Marker",
    "RefuseCommits",
    "Revoke",
    "ScriptedLog",
    "ScriptedSource",
    "Trim",
    "Write",
    "record",
]

AWAIT_S_MAX: Final = 20.0
"""How long a script waits for what it awaits; then it ends, and `failure` says for what."""


class ScriptedSource:
    """Plays a script on a thread of its own."""

    def __init__(
        self,
        script: Iterable[Step],
        deliver: Callable[[Sequence[Event]], None],
        *,
        log: ScriptedLog | None = None,
        grace_s: float = 5.0,
        batch_records_max: int = 100,
    ) -> None:
        self.log = log or ScriptedLog()
        self.finished = threading.Event()
        """The script is played to its end, or has crashed; effects are served until `close`."""
        self.crashed = False
        self.failure = ""
        self._script = list(script)
        self._deliver = deliver
        self._grace_s = grace_s
        self._batch_records_max = batch_records_max
        self._commands: queue.SimpleQueue[Sequence[Effect]] = queue.SimpleQueue()
        self._positions: dict[TopicPartition, int] = {}
        self._closed: set[TopicPartition] = set()
        self._draining: set[TopicPartition] = set()
        self._refusals: deque[bool] = deque()
        self._closing = False
        self._lost: dict[TopicPartition, int] = {}
        self._thread = threading.Thread(target=self._run, name="anabranch-scripted-source", daemon=True)

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def do(self, effects: Sequence[Effect]) -> None:
        """Carry out effects soon; never blocks."""
        self._commands.put(effects)

    def taken(self, rooms: Mapping[TopicPartition, Room] | None = None) -> None:  # noqa: ARG002 - a script gives what it has
        """Take notice that the events of one call of `deliver` were taken."""
        self._commands.put(())

    def close(self) -> None:
        """End; never blocks."""
        self._closing = True
        self._commands.put(())

    def join(self, timeout_s: float) -> bool:
        """Wait until the source has ended; answer whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def statistics(self) -> dict[str, Any]:
        """Answer plain values."""
        return {
            "positions": {str(name): position for name, position in dict(self._positions).items()},
            "lost_to_retention": {str(name): lost for name, lost in dict(self._lost).items()},
            "commits": len(self.log.commits),
        }

    # The thread.

    def _run(self) -> None:
        for step in self._script:
            if self._closing or self.failure:
                break
            if isinstance(step, Crash):
                self.crashed = True
                break
            self._play(step)
            self._serve(0)
            self._read()
        if not self.crashed:
            self._deliver([HighWatermarks({name: self.log.partition(name).end for name in self._positions})])
        self.finished.set()
        while not self._closing:
            self._serve(0.05)
            if not self.crashed:
                self._read()

    def _play(self, step: Step) -> None:
        if isinstance(step, Write):
            self.log.append(step)
        elif isinstance(step, Give):
            self._give(step.partitions)
        elif isinstance(step, Revoke):
            self._revoke(step.partitions)
        elif isinstance(step, Lose):
            self._forget(step.partitions)
            self._deliver([Lost(list(step.partitions))])
        elif isinstance(step, Marker):
            self.log.skip(step.partition, 1)
        elif isinstance(step, Aborted):
            self.log.skip(step.partition, step.records + 1)
        elif isinstance(step, Compacted):
            self.log.skip(step.partition, step.before - self.log.partition(step.partition).end)
        elif isinstance(step, Trim):
            self.log.trim(step.partition, step.log_start)
        elif isinstance(step, RefuseCommits):
            self._refusals.extend([step.fenced] * step.count)
        elif isinstance(step, Await):
            self._await(step)
        elif not isinstance(step, Crash):
            self._deliver([step])

    def _give(self, names: Sequence[TopicPartition]) -> None:
        starts = {}
        for name in names:
            partition = self.log.partition(name)
            committed = partition.committed or Position(partition.start, -1, "")
            position = max(committed.position, partition.start)
            self._count_lost(name, position - committed.position)
            self._positions[name] = position
            starts[name] = Start(position, committed.metadata, self.log.topic_id, partition.start, partition.end)
        self._deliver([Assigned(starts)])

    def _revoke(self, names: Sequence[TopicPartition]) -> None:
        """As the client's callback does it: effects are served, nothing is read."""
        self._draining = set(names)
        deadline = time.monotonic() + self._grace_s
        self._deliver([Revoked(list(names), deadline)])
        while self._draining and time.monotonic() < deadline + 1.0 and not self._closing:
            self._serve(0.05)
        if self._draining:
            self._deliver([Lost(sorted(self._draining))])
        self._forget(names)

    def _forget(self, names: Iterable[TopicPartition]) -> None:
        for name in names:
            self._positions.pop(name, None)
            self._closed.discard(name)
            self._draining.discard(name)

    def _await(self, step: Await) -> None:
        end = time.monotonic() + AWAIT_S_MAX
        while (self.log.committed(step.partition) or 0) < step.committed and not self._closing:
            self._serve(0.01)
            self._read()
            if time.monotonic() > end:
                self.failure = f"waited {AWAIT_S_MAX:g} s for {step}; committed is {self.log.committed(step.partition)}"
                return

    def _read(self) -> None:
        """Hand over what is in the log behind the positions of open partitions."""
        events = []
        for name, position in list(self._positions.items()):
            if name not in self._closed:
                event = self._fetched(name, position)
                if event is not None:
                    events.append(event)
                    self._positions[name] = event.position
        if events:
            self._deliver(events)

    def _fetched(self, name: TopicPartition, position: int) -> Fetched | None:
        partition = self.log.partition(name)
        if position < partition.start:
            self._count_lost(name, partition.start - position)
            position = partition.start
        if self._positions[name] >= partition.end:
            return None
        offsets = sorted(offset for offset in partition.records if offset >= position)[: self._batch_records_max]
        more = bool(offsets) and any(offset > offsets[-1] for offset in partition.records)
        # The position passes what is behind the last record and is none: it is the consumer's, not the record's.
        after = offsets[-1] + 1 if more else partition.end
        return Fetched(name, [partition.records[offset] for offset in offsets], after)

    def _count_lost(self, name: TopicPartition, offsets: int) -> None:
        if offsets:
            self._lost[name] = self._lost.get(name, 0) + offsets

    def _serve(self, timeout_s: float) -> None:
        try:
            effects = self._commands.get(timeout=timeout_s) if timeout_s > 0 else self._commands.get_nowait()
            while True:
                for effect in effects:
                    self._carry_out(effect)
                effects = self._commands.get_nowait()
        except queue.Empty:
            return

    def _carry_out(self, effect: Effect) -> None:
        if self.crashed:
            return
        if isinstance(effect, Pause):
            self._closed.update(name for name in effect.partitions if name in self._positions)
        elif isinstance(effect, Resume):
            self._closed.difference_update(effect.partitions)
        elif isinstance(effect, Released):
            self._draining.difference_update(effect.partitions)
        elif isinstance(effect, Commit):
            self._commit(effect)

    def _commit(self, commit: Commit) -> None:
        fenced = self._refusals.popleft() if self._refusals else None
        errors: dict[TopicPartition, str | None] = {}
        for name, position in commit.positions.items():
            if fenced is not None:
                errors[name] = "refused by the script"
            elif name not in self._positions:
                errors[name] = "the partition is not ours any more"
            else:
                self.log.commit(name, position)
                errors[name] = None
        if fenced:
            self._forget(list(self._positions))
        self._deliver([CommitEnded(errors, bool(fenced), commit.number)])
