"""What the broker knows besides records: its cluster id, topics, leader epoch, producer ids. Kept in one small file.

Every change replaces the whole file (`@catalog.json`) atomically and durably before it takes effect, so a crash finds
the old state or the new one. Rules that hold here:

- The leader epoch rises at every start, before the first request is answered.
- Producer ids come in blocks; a block is stored as used before its first id is handed out, and what is left of it at a
  stop is never used. An id given twice would make a new producer look like an old one, and its records vanish.
- A topic is gone when the catalog says so; its folder is moved aside afterwards. A folder that no topic claims is
  never read: a topic of the same name that comes later starts in a new folder.

'@' cannot be part of a topic's name: our own files never meet a topic's folder.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from anabranch.broker.log.store import Store
from anabranch.core.errors import UsageError

CATALOG: Final = "@catalog.json"
VERSION: Final = 1
PRODUCER_ID_BLOCK: Final = 1000


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic as it is stored."""

    name: str
    topic_id: str
    """32 hexadecimal digits."""
    partitions: int
    configs: Mapping[str, str]
    log_starts: Mapping[int, int] = field(default_factory=dict)
    """By partition; 0 where there is none. Raised by DeleteRecords and retention."""


@dataclass(frozen=True, slots=True)
class _Contents:
    version: int
    cluster_id: str
    leader_epoch: int
    producer_id_next: int
    topics: Mapping[str, TopicEntry]


class Catalog:
    """The stored state of one data folder. Every public call that changes it has stored it when it returns."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._contents = self._read()
        self._producer_id_end = self._contents.producer_id_next

    @property
    def cluster_id(self) -> str:
        """The name of this cluster, made once."""
        return self._contents.cluster_id

    @property
    def leader_epoch(self) -> int:
        """How many times this data folder was started."""
        return self._contents.leader_epoch

    @property
    def topics(self) -> Mapping[str, TopicEntry]:
        """All topics by name."""
        return self._contents.topics

    def raise_leader_epoch(self) -> int:
        """Count one more start and answer the count."""
        self._write(replace(self._contents, leader_epoch=self._contents.leader_epoch + 1))
        return self._contents.leader_epoch

    def next_producer_id(self) -> int:
        """Answer an id that was never handed out before."""
        given = self._contents.producer_id_next
        if given == self._producer_id_end:
            end = self._producer_id_end + PRODUCER_ID_BLOCK
            self._write(replace(self._contents, producer_id_next=end))
            self._producer_id_end = end
        # What is stored is the end of the block; what is in memory walks through it.
        self._contents = replace(self._contents, producer_id_next=given + 1)
        return given

    def put_topics(self, *entries: TopicEntry) -> None:
        """Add or change topics."""
        self._write(
            replace(self._contents, topics={**self._contents.topics, **{entry.name: entry for entry in entries}})
        )

    def remove_topic(self, name: str) -> None:
        """Forget a topic."""
        topics = {key: entry for key, entry in self._contents.topics.items() if key != name}
        self._write(replace(self._contents, topics=topics))

    def raise_log_starts(self, raised: Mapping[str, Mapping[int, int]]) -> None:
        """Store new log starts, by topic and partition."""
        changed = [
            replace(entry, log_starts={**entry.log_starts, **starts})
            for name, starts in raised.items()
            if (entry := self._contents.topics.get(name)) is not None
        ]
        if changed:
            self.put_topics(*changed)

    def check_invariants(self) -> None:
        """Assert what must hold at any time."""
        contents = self._contents
        assert contents.producer_id_next <= self._producer_id_end
        for name, entry in contents.topics.items():
            assert name == entry.name
            assert entry.partitions > 0
            assert all(0 <= partition < entry.partitions for partition in entry.log_starts)

    def _read(self) -> _Contents:
        stored = self._store.read_file(CATALOG)
        if stored is None:
            return _Contents(VERSION, secrets.token_urlsafe(16), 0, 0, {})
        try:
            version = msgspec.json.decode(stored, type=dict[str, Any]).get("version")
            if version != VERSION:
                found = f"this data folder has format version {version}, this broker knows {VERSION}"
                raise UsageError(f"{found}: use the broker that wrote it")
            return msgspec.json.decode(stored, type=_Contents)
        except msgspec.MsgspecError as error:
            message = f"{CATALOG} in the data folder is damaged ({error}): restore it from a copy, nothing was changed"
            raise UsageError(message) from error

    def _write(self, contents: _Contents) -> None:
        stored = replace(
            contents, producer_id_next=max(contents.producer_id_next, getattr(self, "_producer_id_end", 0))
        )
        self._store.replace_file(CATALOG, msgspec.json.format(msgspec.json.encode(stored), indent=1))
        self._contents = contents
