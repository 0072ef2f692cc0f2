"""A sink, and an account of what it reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from waiting import eventually

from anabranch.control.effects import DeadLetter
from anabranch.core.records import Record
from anabranch.core.work import Delivery, Output, Task
from anabranch.kafka.settings import SinkSettings
from anabranch.kafka.sink import KafkaSink

if TYPE_CHECKING:
    from collections.abc import Sequence


class Account:
    """Writes through a sink and keeps its deliveries."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self.deliveries: list[Delivery] = []
        self.sink = KafkaSink(SinkSettings(bootstrap, **settings), self.deliveries.extend)

    def __enter__(self) -> Self:
        self.sink.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.sink.close()
        if not self.sink.join(10):
            self.sink.terminate()
            self.sink.join(10)

    def write(self, *outputs: Sequence[Output]) -> list[Task]:
        """Send tasks with these outputs, one task for each list."""
        tasks = [task(Record("origin", 0, number, None, None), each) for number, each in enumerate(outputs)]
        self.sink.write(tasks)
        return tasks

    def bury(self, record: Record, cause: BaseException, step: str = "handle", attempt: int = 3) -> Task:
        """Send a record to the dead letters."""
        dead = task(record)
        dead.attempt = attempt
        self.sink.dead_letter(DeadLetter(dead, cause, step), "the group")
        return dead

    def wait(self, count: int) -> list[Delivery]:
        """Wait for so many deliveries, and see that there are no more."""
        eventually(lambda: len(self.deliveries) >= count, f"{count} deliveries; {self.sink.statistics()}")
        assert len(self.deliveries) == count
        return self.deliveries


def task(record: Record, outputs: Sequence[Output] = ()) -> Task:
    """Make a task as control would hand it to a sink."""
    made = Task(record, None, 1, 0, 0)
    made.outputs = outputs
    return made
