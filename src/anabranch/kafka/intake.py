"""What comes out of the library's consumer: records to hand over or to hold back, ends of partitions, complaints.

Positions are ours: of every owned partition the position after what was read is known, and only what stands behind it
is taken. A batch is gathered over several of the library's steps, and a rebalance may fall between them: what was
revoked and assigned again within one batch is read anew, because some of it may be from before.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as LibraryPartition

from anabranch.control.events import Event, Fetched
from anabranch.core.work import TopicPartition
from anabranch.kafka.client import translated
from anabranch.kafka.holdback import Batch, Holdback
from anabranch.kafka.messages import sort_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.kafka.membership import Membership
    from anabranch.kafka.settings import SourceSettings

POLL_S: Final = 0.01
"""How long a poll waits for a first record: effects wait so long."""
GATHER_S: Final = 0.001

_STRAYED: Final = frozenset({"_AUTO_OFFSET_RESET", "_LOG_TRUNCATION", "OFFSET_OUT_OF_RANGE"})
_REFUSED: Final = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "INCONSISTENT_GROUP_PROTOCOL",
        "INVALID_GROUP_ID",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "_AUTHENTICATION",
    }
)


class Intake:
    """The reading side of a source. Used on its thread only."""

    def __init__(
        self,
        consumer: Consumer,
        settings: SourceSettings,
        membership: Membership,
        holdback: Holdback,
        *,
        deliver: Callable[[Sequence[Event]], None],
    ) -> None:
        """Read from the consumer what the membership owns; hand it to `deliver` as far as the holdback lets it."""
        self.records = 0
        self.batches = 0
        self.stops = 0
        """How often a partition was paused in the library."""
        self.polls_exceeded = 0
        self.complaint = ""
        """What the library complained about last, and went on."""
        self.in_touch = False
        """Whether anything was heard from a broker since the caller last cleared it."""
        self._consumer = consumer
        self._settings = settings
        self._membership = membership
        self._holdback = holdback
        self._deliver = deliver
        self._batch_records = settings.batch_records_max

    def read(self) -> None:
        """Wait a moment for records, and take a batch."""
        first = self._consumer.poll(POLL_S)
        if first is None:
            return
        self._membership.revoked_in_call.clear()
        if self._batch_records == 1:
            self._take([first], hold=False)
        else:
            self._take([first, *self._consumer.consume(self._batch_records - 1, GATHER_S)], hold=False)

    def glance(self, *, hold: bool) -> None:
        """Poll for the sake of callbacks; a record that comes with it is taken, and held back if wanted."""
        first = self._consumer.poll(0)
        if first is not None:
            self._membership.revoked_in_call.clear()
            self._take([first], hold=hold)

    def release(self) -> None:
        """Hand over what was held back and may go out."""
        batches, resumed = self._holdback.release(self._settings.batch_records_max)
        if resumed:
            self._consumer.resume([LibraryPartition(*name) for name in resumed])
        if batches:
            self._deliver([Fetched(each.partition, each.records, each.position) for each in batches])

    def _take(self, messages: list[Message], *, hold: bool) -> None:
        batches, problems = sort_messages(messages)
        events: list[Event] = []
        records = weight = 0
        for found in batches:
            batch = self._checked(found)
            if batch is None:
                continue
            records += len(batch.records)
            weight += batch.bytes
            self._membership.owned[batch.partition] = batch.position
            if hold:
                self._holdback.keep(batch)
            elif (passing := self._holdback.passing(batch)) is not None:
                events.append(Fetched(passing.partition, passing.records, passing.position))
        for problem in problems:
            self._meet(problem, events)
        self._stop_overfull()
        if events:
            self._deliver(events)
        if records:
            self._arrived(records, weight)

    def _checked(self, batch: Batch) -> Batch | None:
        """Return what of a batch is new and ours."""
        partition = batch.partition
        expected = self._membership.owned.get(partition)
        if expected is None:
            return None
        if partition in self._membership.revoked_in_call:
            # Revoked and assigned again while the batch was gathered: some of it may be from before. Read it again.
            self._membership.relocate({partition: expected})
            return None
        if batch.records[0].offset >= expected:
            return batch
        fresh = [record for record in batch.records if record.offset >= expected]
        return Batch(partition, fresh, batch.position, batch.bytes) if fresh else None

    def _arrived(self, records: int, weight: int) -> None:
        self.records += records
        self.batches += 1
        self.in_touch = True
        # Large records make small batches.
        each = max(1, weight // records)
        self._batch_records = max(
            1, min(self._settings.batch_records_max, self._settings.batch_bytes_max // each, self._batch_records * 4)
        )

    def _meet(self, problem: Message, events: list[Event]) -> None:
        """Deal with a message that reports an error."""
        error = problem.error()
        assert error is not None
        name = error.name()
        partition = TopicPartition(str(problem.topic()), int(problem.partition() or 0))
        if name == "_PARTITION_EOF":
            self._reached_end(partition, int(problem.offset() or 0), events)
        elif name in _STRAYED:
            self._membership.strayed(partition, error.str(), time.monotonic())
        elif name == "_MAX_POLL_EXCEEDED":
            self.polls_exceeded += 1  # the library leaves the group, reports all as lost and joins again
        elif error.fatal() or name == "_FATAL" or name in _REFUSED:
            raise translated(error, f"reading {problem.topic() or 'topics'}")
        else:
            self.complaint = error.str()

    def _reached_end(self, partition: TopicPartition, position: int, events: list[Event]) -> None:
        """Move past what stands at the end of a log and is no record: markers, an aborted tail, a compacted one."""
        self.in_touch = True
        expected = self._membership.owned.get(partition)
        if expected is None or partition in self._membership.revoked_in_call or position <= expected:
            return
        self._membership.owned[partition] = position
        if self._holdback.passing(Batch(partition, (), position, 0)) is not None:
            events.append(Fetched(partition, (), position))

    def _stop_overfull(self) -> None:
        stopped = self._holdback.overfull()
        if stopped:
            self.stops += len(stopped)
            self._consumer.pause([LibraryPartition(*name) for name in stopped])
