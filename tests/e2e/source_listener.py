"""Listen to a source as the runtime would: take its events, answer revokes, and keep everything to look at."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

from waiting import eventually

from anabranch.control.effects import Commit, Effect, Position, Released
from anabranch.control.events import Assigned, CommitEnded, Fetched, Lost, Revoked, Start
from anabranch.kafka.settings import SourceSettings
from anabranch.kafka.source import KafkaSource, SourceFailed
from anabranch.pipeline.plan import ReadPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.core.records import Record
    from anabranch.core.work import TopicPartition
    from anabranch.kafka.source import SourceEvent


class Listener:
    """A source and what it said. Takes every batch at once unless told to be slow; lets go of what is revoked."""

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[str],
        group: str,
        *,
        start: Any = "committed",
        pattern: str | None = None,
        **settings: Any,
    ) -> None:
        self.events: list[SourceEvent] = []
        self.slow = False
        self.releases = True
        self.commits_at_revoke = False
        self._untaken = 0
        self._lock = threading.Lock()
        self.owned: dict[TopicPartition, int] = {}
        self.read: dict[TopicPartition, list[Record]] = {}
        """The records since each partition was assigned."""
        settings["extra"] = {"heartbeat.interval.ms": "200", **settings.get("extra", {})}  # rebalances without waiting
        self.source = KafkaSource(
            ReadPlan(tuple(topics), pattern, start), group, SourceSettings(bootstrap, **settings), self._deliver
        )

    def __enter__(self) -> Self:
        self.source.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.slow = False
        self.source.close()
        assert self.source.join(20), "the source did not end"

    def _deliver(self, events: Sequence[SourceEvent]) -> None:
        with self._lock:
            self.events += events
            for event in events:
                self._note(event)
            self._untaken += 1
            if not self.slow:
                self._take()

    def _note(self, event: SourceEvent) -> None:
        if isinstance(event, Assigned):
            for name, start in event.starts.items():
                self.owned[name] = start.position
                self.read[name] = []
        elif isinstance(event, Fetched):
            if event.partition in self.owned:
                self.read[event.partition] += event.records
                self.owned[event.partition] = event.position
        elif isinstance(event, Revoked):
            self._let_go(event.partitions)
        elif isinstance(event, Lost):
            for name in event.partitions:
                self.owned.pop(name, None)
        elif isinstance(event, CommitEnded) and event.fenced:
            self.owned.clear()

    def _let_go(self, partitions: Sequence[TopicPartition]) -> None:
        if self.commits_at_revoke:
            self.source.do([Commit({name: Position(self.owned[name], -1, "") for name in partitions})])
        if self.releases:
            self.source.do([Released(partitions)])
        for name in partitions:
            self.owned.pop(name, None)

    def _take(self) -> None:
        for _ in range(self._untaken):
            self.source.taken()
        self._untaken = 0

    def hurry(self) -> None:
        """Take everything that was not taken."""
        with self._lock:
            self.slow = False
            self._take()

    def do(self, *effects: Effect) -> None:
        """Give the source effects."""
        self.source.do(effects)

    def all(self, kind: type[Any]) -> list[Any]:
        """Return the events of a kind."""
        return [event for event in list(self.events) if isinstance(event, kind)]

    def starts(self) -> dict[TopicPartition, Start]:
        """Return where partitions began, the latest time each was assigned."""
        return {name: start for event in self.all(Assigned) for name, start in event.starts.items()}

    def values(self) -> list[bytes | None]:
        """Return the values of all records since their partitions were assigned."""
        return [record.value for records in list(self.read.values()) for record in list(records)]

    def wait_for_partitions(self, count: int) -> None:
        """Wait until so many partitions are owned."""
        eventually(lambda: len(self.owned) == count, f"{count} partitions assigned; now {self.owned}")

    def wait_for_records(self, count: int) -> None:
        """Wait until so many records were read."""
        eventually(lambda: len(self.values()) >= count, f"{count} records read")

    def wait_for_commit(self, count: int = 1) -> CommitEnded:
        """Wait until so many commits have ended; answer the last."""
        ended = eventually(
            lambda: found if len(found := self.all(CommitEnded)) >= count else None, f"{count} commits ended"
        )
        return ended[-1]

    def wait_for_failure(self) -> Exception:
        """Wait until the source says that it cannot go on; answer why."""
        failed = eventually(lambda: self.all(SourceFailed), "the source to fail")
        return failed[0].error

    def all_fetched(self, name: TopicPartition) -> list[Fetched]:
        """Return what was fetched of a partition, whenever it was assigned."""
        return [event for event in self.all(Fetched) if event.partition == name]
