"""What is sent for one task: its outputs, or its letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import KafkaError

    from anabranch.control.effects import DeadLetter
    from anabranch.core.work import Task

TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})


class Sending:
    """What is sent for one task."""

    __slots__ = ("alone", "effect", "left", "next", "order", "parcels", "task")

    def __init__(self, task: Task, order: int, parcels: Sequence[Any], effect: DeadLetter | None = None) -> None:
        self.task = task
        self.order = order
        self.parcels = parcels
        """Outputs or parcels: both have topic, key, value, headers and timestamp_ms."""
        self.effect = effect
        self.left = len(parcels)
        """How many are not acknowledged; 0 also when the sending was refused."""
        self.next = 0
        """The first that the library has not been given."""
        self.alone: set[int] | None = None
        """The parcels that were refused for their size, and are sent once more by themselves."""

    @property
    def origin(self) -> str | None:
        """Return the topic that a letter comes from; None for outputs."""
        return self.task.record.topic if self.effect is not None else None

    def address(self, partitions: int) -> None:
        """Give a letter its partition, now that it is known how many there are."""
        if self.effect is not None:
            self.parcels = [self.parcels[0]._replace(partition=self.task.record.partition % partitions)]

    def refusal(self, index: int, error: KafkaError) -> PeerError:
        """Return the sentence for a parcel that is refused for good."""
        topic, record = self.parcels[index].topic, self.task.record
        what = "a dead letter" if self.effect is not None else "an output"
        too_large = error.name() in TOO_LARGE
        fix = f"raise max.message.bytes of topic {topic}" if too_large else "allow this client to write there"
        return PeerError(
            f"{what} of {record.topic}/{record.partition} at {record.offset} was refused by topic {topic}: "
            f"{error.str()}; {fix}"
        )
