"""Store positions: one commit in flight at a time, judged per partition.

Outside of callbacks a commit is asynchronous and its answer comes with a later poll. In the revoke callback nothing may
be polled, so commits are synchronous there, and one that was in flight when the callback began is made again: storing
the same positions twice is harmless, and the plane must not wait for an answer that cannot come. The answer of the
first is ignored when it arrives: answers come in the order of the requests.

Nothing is sent while the library has no member id: the group has expelled it (it was frozen, or cut off), and it is
about to join again. A commit would go out with an empty id, and when it comes behind the JoinGroup of a static member,
the broker takes it for a stranger's in that member's place: FENCED_INSTANCE_ID, which the library never gets over. So
such a commit is refused here, with what the broker says when it comes before.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from anabranch.control.events import CommitEnded
from anabranch.core.work import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from anabranch.control.effects import Commit

FENCED: Final = frozenset(
    {
        "UNKNOWN_MEMBER_ID",
        "FENCED_INSTANCE_ID",
        "FENCED_MEMBER_EPOCH",
        "_ASSIGNMENT_LOST",
        "_FENCED",
    }
)
"""The group went on without us. Not among them: ILLEGAL_GENERATION and STALE_MEMBER_EPOCH, with which a commit is
refused that was under way while a rebalance ended; a member that stays one just commits again."""

OVERDUE_S: Final = 30.0
"""Far beyond the library's own time-out: an answer that is so late was lost."""


class Committing:
    """Commits of one consumer. Used on its thread only."""

    def __init__(self, consumer: Consumer, ended: Callable[[CommitEnded], None]) -> None:
        """Report the end of every commit to `ended`."""
        self._consumer = consumer
        self.note: Callable[[TopicPartition], str] = _nothing
        """What a commit carries that has no metadata of control's."""
        self._ended = ended
        self._in_flight: tuple[Commit, Sequence[TopicPartition]] | None = None
        self._superseded = 0
        self._overdue_at = 0.0
        self.commits = 0
        self.errors = 0
        self.last_error = ""

    @property
    def in_flight(self) -> bool:
        """Tell whether an answer is awaited."""
        return self._in_flight is not None

    def overdue(self, now: float) -> bool:
        """Tell whether an answer is so late that `settle` should ask again."""
        return self._in_flight is not None and now >= self._overdue_at

    def begin(self, commit: Commit, gone: Sequence[TopicPartition] = ()) -> None:
        """Commit; the answer comes with a later poll. Partitions that are `gone` are answered with a refusal."""
        self.settle()  # control has one in flight at a time, apart from revokes
        self.commits += 1
        offsets = self._offsets(commit, gone)
        if not offsets:
            self._end(commit, {}, gone)
            return
        self._in_flight = (commit, gone)
        self._overdue_at = time.monotonic() + OVERDUE_S
        try:
            check_member(self._consumer)
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._in_flight = None
            self._end(commit, _judged(commit, error.args[0], ()), gone)

    def answered(self, error: KafkaError | None, answers: Sequence[LibraryPartition]) -> None:
        """Take an answer: the library's `on_commit` callback."""
        if self._superseded:
            self._superseded -= 1
            return
        awaited, self._in_flight = self._in_flight, None
        if awaited is not None:
            commit, gone = awaited
            self._end(commit, _judged(commit, error, answers), gone)

    def make(self, commit: Commit, gone: Sequence[TopicPartition] = ()) -> None:
        """Commit and wait for the answer."""
        self.commits += 1
        self._make(commit, gone)

    def settle(self) -> None:
        """Get an answer to what is in flight without polling: make it again and wait."""
        awaited, self._in_flight = self._in_flight, None
        if awaited is not None:
            self._superseded += 1
            self._make(*awaited)

    def _make(self, commit: Commit, gone: Sequence[TopicPartition]) -> None:
        offsets = self._offsets(commit, gone)
        try:
            answers = commit_now(self._consumer, offsets) if offsets else ()
        except KafkaException as error:
            self._end(commit, _judged(commit, error.args[0], ()), gone)
        else:
            self._end(commit, _judged(commit, None, answers), gone)

    def _end(
        self, commit: Commit, errors: Mapping[TopicPartition, KafkaError | None], gone: Sequence[TopicPartition]
    ) -> None:
        failed = [error for error in errors.values() if error is not None]
        if failed:
            self.errors += 1
            self.last_error = failed[0].str()
        sentences = {name: None if error is None else error.str() for name, error in errors.items()}
        sentences.update(dict.fromkeys(gone, "the partition is not ours any more"))
        self._ended(CommitEnded(sentences, any(error.name() in FENCED for error in failed), commit.number))

    def _offsets(self, commit: Commit, gone: Sequence[TopicPartition]) -> list[LibraryPartition]:
        return [
            LibraryPartition(*name, each.position, each.metadata or self.note(name), each.leader_epoch)
            for name, each in commit.positions.items()
            if name not in gone
        ]


def commit_now(consumer: Consumer, offsets: list[LibraryPartition]) -> Sequence[LibraryPartition]:
    """Store positions and wait for the answers; raise KafkaException when there are none."""
    check_member(consumer)
    return consumer.commit(offsets=offsets, asynchronous=False) or ()


def check_member(consumer: Consumer) -> None:
    """Raise KafkaException unless the library has a member id to commit with."""
    if not consumer.memberid():
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))


def _judged(
    commit: Commit, error: KafkaError | None, answers: Sequence[LibraryPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Return what became of each partition: its own error, or that of the whole request."""
    own = {TopicPartition(each.topic, each.partition): each.error for each in answers}
    return {partition: own.get(partition) or error for partition in commit.positions}


def _nothing(_partition: TopicPartition) -> str:
    return ""
