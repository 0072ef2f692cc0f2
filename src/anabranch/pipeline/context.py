"""What a handler may know about the record it is called with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.core.records import Headers, Record
    from anabranch.core.work import Task

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REQUEST_ID_BYTES = 16  # two records share an id once in 2^64 records: as rare as for random UUIDs


class Context:
    """One call's surroundings. Made for each call of a handler that asks for it: what costs time is worked out late."""

    __slots__ = ("_assignment", "_cluster_id", "attempt", "record", "resources", "step")

    def __init__(self, task: Task, step: str, resources: Any = None, cluster_id: str = "") -> None:
        self.record: Record = task.record
        """The record as it was read: its bytes, its timestamp in milliseconds, its leader epoch."""
        self.attempt = task.attempt
        """1 for the first try."""
        self.step = step
        self.resources = resources
        """What the pipeline's lifespan gave this process; None without one."""
        self._cluster_id = cluster_id
        self._assignment = task.assignment

    @property
    def topic(self) -> str:
        """The topic that the record was read from."""
        return self.record.topic

    @property
    def partition(self) -> int:
        """The partition that the record was read from."""
        return self.record.partition

    @property
    def offset(self) -> int:
        """The record's offset in its partition."""
        return self.record.offset

    @property
    def key(self) -> bytes | None:
        """The record's own key, also where another ordering key was chosen."""
        return self.record.key

    @property
    def headers(self) -> Headers:
        """The record's headers, in their order; a name may come more than once."""
        return self.record.headers

    @property
    def timestamp(self) -> datetime | None:
        """The record's time in UTC; None when it has none."""
        milliseconds = self.record.timestamp_ms
        return None if milliseconds < 0 else _EPOCH + timedelta(milliseconds=milliseconds)

    @property
    def request_id(self) -> str:
        """Return an id that is the same for every attempt and every replay of this record in this step, as hex.

        Give it to the other side as its idempotency key: a crash may repeat a call that has already had its effect.
        """
        topic_id: str = getattr(self._assignment, "topic_id", "")
        return request_id(self._cluster_id, topic_id, self.record, self.step)

    def __repr__(self) -> str:
        record = self.record
        place = f"{record.topic}/{record.partition}@{record.offset}"
        return f"<Context {place} step={self.step} attempt={self.attempt}>"


def request_id(cluster_id: str, topic_id: str, record: Record, step: str, child: int = 0) -> str:
    """Hash what names one call for ever: cluster, topic (by its id where it is known), partition, offset, child, step.

    No part can hold a NUL, so the text says one thing only. The 1 in front is the version of this recipe: two releases
    that meet in one group must agree on it.
    """
    topic = topic_id or record.topic
    text = f"1\0{cluster_id}\0{topic}\0{record.partition}\0{record.offset}\0{child}\0{step}"
    return blake2b(text.encode(), digest_size=_REQUEST_ID_BYTES).hexdigest()
