"""One simulated process: a plane with a scripted source, engine and sink, and eyes on what must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from anabranch.control.events import Completed, Delivered, Stop, Tick
from anabranch.core import history
from anabranch.core.work import TopicPartition
from anabranch.testing.simulation.engine import ScriptedEngine
from anabranch.testing.simulation.sink import ScriptedSink
from anabranch.testing.simulation.source import ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.control.effects import Effect
    from anabranch.control.events import Event
    from anabranch.control.plane import Plane
    from anabranch.core.work import Completion, Delivery, Task
    from anabranch.testing.simulation.group import Group
    from anabranch.testing.simulation.world import World

LOOK_EVERY = 50
"""After so many steps the statistics are looked at."""
TICKS_AT_ONCE_MAX = 20
"""More ticks than this at one time mean that a plane is busy with waiting."""


class Member:
    """A process of the group, from its start to its end. After a crash the next one is another."""

    def __init__(self, world: World, group: Group, plane: Plane, number: int, pid: int) -> None:
        self.world = world
        self.group = group
        self.number = number
        self.pid = pid
        self.name = f"member-{number}"
        self.history = world.history(self.name, pid)
        self.plane = plane
        self.membership = 0
        self.source = ScriptedSource(self)
        self.engine = ScriptedEngine(self)
        self.sink = ScriptedSink(self)
        self.is_alive = True
        self.is_frozen = False
        self.is_stopping = False
        self.is_doomed = False
        """It was frozen past its session and will be ended: it is given nothing any more."""
        self._deferred: list[Callable[[], None]] = []
        self._armed: float | None = None
        self._ticked_at = -1.0
        self._ticks_now = 0
        self._settled: set[Task] = set()

    @property
    def is_available(self) -> bool:
        """Whether it can be given partitions."""
        return self.is_alive and not (self.is_frozen or self.is_stopping or self.is_doomed)

    # Time

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something in this process after a delay: not if it has died, later if it is frozen."""
        self.at(self.world.clock.now + delay_s, action)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something in this process at a time."""
        self.world.clock.at(time, lambda: self._do(action))

    def _do(self, action: Callable[[], None]) -> None:
        if self.is_frozen:
            self._deferred.append(action)
        elif self.is_alive:
            action()

    def thaw(self) -> None:
        """Go on where it was frozen: all that should have happened meanwhile happens now."""
        self.is_frozen = False
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            self._do(action)

    def die(self) -> None:
        """End at once; nothing in memory is left."""
        self.is_alive = self.is_frozen = False
        self.world.skipped += self.plane.statistics().skipped
        self.world.late += self.plane.statistics().late

    # The plane

    def stop(self, deadline: float) -> None:
        """Ask it to stop."""
        self.is_stopping = True
        self.step(Stop(deadline))

    def completed(self, completions: Sequence[Completion]) -> None:
        """Take calls that ended."""
        self.step(Completed(completions))

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Take what was acknowledged."""
        self.step(Delivered(deliveries))

    def step(self, event: Event) -> None:
        """Let the plane decide, look whether all its rules hold, and do what it wants."""
        if not self.is_alive:
            return
        self.world.steps += 1
        effects = self.plane.step(event, self.world.clock.now)
        if self.world.steps % self.world.scenario.check_every == 0:
            self.plane.check_invariants()
        if self.world.steps % LOOK_EVERY == 0:
            self._look()
        for effect in effects:
            self._perform(effect)
        self._arm()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Submit():
                self.engine.submit(effect.tasks)
            case Settled():
                self._note_settled(effect)
            case Write():
                self.sink.write(effect.tasks)
            case Cancel():
                self.engine.cancel(effect.tasks)
            case DeadLetter():
                self.sink.dead_letter(effect.task)
            case Commit() | Pause() | Resume() | Released():
                self.source.do(effect)
            case Halt():
                self.world.violation(f"{self.name} halted: {effect.reason}")
            case Stopped():
                self.later(self.world.scenario.latency_s * 2, lambda: self.group.has_left(self))

    def _note_settled(self, effect: Settled) -> None:
        events = []
        for task in effect.tasks:
            if task in self._settled:
                self.world.violation(f"{self.name} settled {task!r} twice")
            if (effect.how == "dead" or task.outputs) and task not in self.sink.acknowledged:
                self.world.violation(f"{self.name} settled {task!r} before it was acknowledged")
            self._settled.add(task)
            record = task.record
            self.world.settled.add((TopicPartition(record.topic, record.partition), record.offset))
            events.append(
                history.Settled(self.name, task.epoch, record.topic, record.partition, record.offset, effect.how)
            )
        self.history.record(events)

    def _look(self) -> None:
        """Look at what the plane says of itself."""
        for partition in self.plane.statistics().partitions:
            if partition.phase == "owned" and partition.held >= partition.records_max and partition.gate == "open":
                self.world.violation(f"{self.name} holds {partition.held} and its gate is open: {partition}")
        if not all(self.plane.why()):
            self.world.violation("an answer to why is empty")

    def _arm(self) -> None:
        deadline = self.plane.next_deadline()
        if deadline is not None and (self._armed is None or deadline < self._armed):
            self._armed = deadline
            self.at(deadline, lambda: self._tick(deadline))

    def _tick(self, deadline: float) -> None:
        if self._armed != deadline:
            return
        self._armed = None
        now = self.world.clock.now
        self._ticks_now = self._ticks_now + 1 if now == self._ticked_at else 0
        self._ticked_at = now
        if self._ticks_now == TICKS_AT_ONCE_MAX:
            self.world.violation(f"{self.name} wants ticks without end, and time does not pass")
        if self._ticks_now < TICKS_AT_ONCE_MAX:
            self.step(Tick())
