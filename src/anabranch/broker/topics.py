"""The topics of one broker: stored in the catalog, open as partitions, changed by administration.

The order of every change is: durable in the catalog, then on disk, then in memory. A crash in between leaves a folder
that no topic claims, which is never read (see `catalog`), or an empty folder to be made at the next start.
"""

import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from anabranch.broker.catalog import Catalog, TopicEntry
from anabranch.broker.flush import Flusher
from anabranch.broker.log.errors import LogError
from anabranch.broker.log.index import IndexCache
from anabranch.broker.log.partition import PartitionLog
from anabranch.broker.log.store import Store
from anabranch.broker.partition import Partition
from anabranch.broker.topic_config import check_configs, log_config
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.core.errors import PeerError, UsageError
from anabranch.core.options import BrokerOptions

logger = logging.getLogger("anabranch.broker.topics")

OFFSETS_TOPIC: Final = "__consumer_offsets"
_OFFSETS_CONFIGS: Final = {"segment.bytes": str(16 * 1024 * 1024), "retention.ms": "-1", "retention.bytes": "-1"}
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
DELETED: Final = "@deleted"


class TopicError(PeerError):
    """A change of topics that is refused, with the code and the sentence for the client."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Topic:
    """A topic that is open."""

    __slots__ = ("configs", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, configs: Mapping[str, str], partitions: list[Partition]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.configs = configs
        self.partitions = partitions

    @property
    def internal(self) -> bool:
        """Whether it is the broker's own: clients may read it and not write."""
        return self.name == OFFSETS_TOPIC


class Topics:
    """All topics of a broker, by name and by id."""

    def __init__(
        self, store: Store, catalog: Catalog, options: BrokerOptions, flusher: Flusher, leader_epoch: int
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._options = options
        self._flusher = flusher
        self._leader_epoch = leader_epoch
        self._index_cache = IndexCache()
        self._deleting: set[str] = set()
        """Names whose folder is not gone yet: a new topic of that name must not move in."""
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}

    def open(self, now_ms: int) -> None:
        """Open what the catalog lists, recover what needs it, clear away what was deleted."""
        for entry in self._catalog.topics.values():
            self._open_topic(entry, now_ms)
        for name in self._store.list_directory(""):
            if name.startswith(DELETED):
                self._store.remove_directory(name)
            elif not name.startswith("@") and name not in self._by_name:
                logger.warning("folder %s belongs to no topic of this broker and is left alone", name)
        if OFFSETS_TOPIC not in self._by_name:
            self._create(OFFSETS_TOPIC, 1, _OFFSETS_CONFIGS, now_ms)

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._by_name.values()))

    def get(self, name: str) -> Topic | None:
        """Answer the topic of that name."""
        return self._by_name.get(name)

    def with_id(self, topic_id: bytes) -> Topic | None:
        """Answer the topic with that id."""
        return self._by_id.get(topic_id)

    def partition(self, name: str, index: int) -> Partition | None:
        """Answer one partition."""
        topic = self._by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def partitions(self) -> Iterator[Partition]:
        """Answer all partitions."""
        for topic in self:
            yield from topic.partitions

    def check_name(self, name: str) -> None:
        """Raise TopicError if no topic can have this name."""
        if not _NAME.fullmatch(name) or name in {".", ".."}:
            sentence = f"topic name {name[:300]!r} is invalid: 1 to 249 of the letters a-z, A-Z, 0-9, '.', '_' and '-'"
            raise TopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, sentence)

    def check_new(self, name: str, partitions: int, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Answer the configs of a topic that could be created; raise TopicError if it could not."""
        self.check_name(name)
        if name in self._deleting:
            raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} is being deleted: try again in a moment")
        if name in self._by_name:
            raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
        self._check_count(partitions, partitions)
        try:
            return check_configs(configs)
        except UsageError as error:
            raise TopicError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def create(self, name: str, partitions: int, configs: Mapping[str, str | None], now_ms: int) -> Topic:
        """Create a topic, durably; raise TopicError if it cannot be."""
        return self._create(name, partitions, self.check_new(name, partitions, configs), now_ms)

    def check_more_partitions(self, name: str, total: int) -> Topic:
        """Answer the topic if it can be given `total` partitions; raise TopicError if not."""
        topic = self._changeable(name)
        has = len(topic.partitions)
        if total <= has:
            raise TopicError(
                ErrorCode.INVALID_PARTITIONS, f"topic {name} has {has} partitions; they can only grow in number"
            )
        self._check_count(total, total - has)
        return topic

    def add_partitions(self, name: str, total: int, now_ms: int) -> None:
        """Give a topic more partitions, durably."""
        topic = self.check_more_partitions(name, total)
        entry = self._catalog.topics[name]
        changed = TopicEntry(name, entry.topic_id, total, entry.configs, entry.log_starts)
        with _storage_errors():
            self._catalog.put_topics(changed)
            topic.partitions.extend(
                self._open_partition(changed, index, now_ms) for index in range(len(topic.partitions), total)
            )

    async def delete(self, name: str) -> None:
        """Delete a topic: gone from the catalog, then from memory, then from disk."""
        topic = self._changeable(name)
        with _storage_errors():
            self._catalog.remove_topic(name)
        del self._by_name[name], self._by_id[topic.topic_id]
        self._deleting.add(name)
        try:
            await self._close_deleted(topic)
            with _storage_errors():
                self._discard(name)
        finally:
            self._deleting.discard(name)

    async def _close_deleted(self, topic: Topic) -> None:
        for partition in topic.partitions:
            self._flusher.forget(partition)
            partition.failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            await self._flusher.quiet(partition)
            partition.log.close(clean=False)

    def store_log_starts(self, partitions: list[Partition]) -> None:
        """Store the log starts of these partitions."""
        raised: dict[str, dict[int, int]] = {}
        for partition in partitions:
            raised.setdefault(partition.topic, {})[partition.index] = partition.log.log_start
        with _storage_errors():
            self._catalog.raise_log_starts(raised)

    def housekeep(self, now_ms: int) -> None:
        """Roll old segments and drop what retention no longer keeps."""
        shrunk = []
        for partition in self.partitions():
            try:
                partition.log.roll_if_old(now_ms)
                if partition.topic != OFFSETS_TOPIC and partition.log.enforce_retention(now_ms):
                    shrunk.append(partition)
            except LogError as error:
                logger.warning(
                    "%s/%d: retention failed and is tried again: %s", partition.topic, partition.index, error
                )
        if shrunk:
            try:
                self.store_log_starts(shrunk)
            except TopicError as error:
                logger.warning("log starts could not be stored; a restart finds them from the files: %s", error)

    def close(self, *, clean: bool) -> None:
        """Close all logs."""
        for partition in self.partitions():
            try:
                partition.log.close(clean=clean)
            except LogError as error:
                logger.warning(
                    "%s/%d could not be closed cleanly, the next start recovers it: %s",
                    partition.topic,
                    partition.index,
                    error,
                )

    def _changeable(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        if topic.internal:
            raise TopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is the broker's own and stays as it is")
        return topic

    def _check_count(self, partitions: int, added: int) -> None:
        limit = self._options.partitions_max
        if partitions < 1:
            raise TopicError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: there must be at least one")
        if sum(len(topic.partitions) for topic in self._by_name.values()) + added > limit:
            raise TopicError(
                ErrorCode.INVALID_PARTITIONS, f"the broker would have more than {limit} partitions (--partitions-max)"
            )

    def _create(self, name: str, partitions: int, configs: Mapping[str, str], now_ms: int) -> Topic:
        entry = TopicEntry(name, secrets.token_hex(16), partitions, configs)
        with _storage_errors():
            self._discard(name)
            self._catalog.put_topics(entry)
            try:
                return self._open_topic(entry, now_ms)
            except LogError:
                self._catalog.remove_topic(name)
                raise

    def _discard(self, name: str) -> None:
        """Move a folder that no topic claims any more out of the way, and remove it."""
        if self._store.list_directory(name):
            aside = f"{DELETED}-{name}-{secrets.token_hex(8)}"
            self._store.rename(name, aside)
            self._store.remove_directory(aside)

    def _open_topic(self, entry: TopicEntry, now_ms: int) -> Topic:
        partitions = [self._open_partition(entry, index, now_ms) for index in range(entry.partitions)]
        topic = Topic(entry.name, bytes.fromhex(entry.topic_id), entry.configs, partitions)
        self._by_name[entry.name] = self._by_id[topic.topic_id] = topic
        return topic

    def _open_partition(self, entry: TopicEntry, index: int, now_ms: int) -> Partition:
        log = PartitionLog.open(
            self._store,
            f"{entry.name}/{index}",
            log_config(entry.configs, self._options),
            leader_epoch=self._leader_epoch,
            now_ms=now_ms,
            log_start=entry.log_starts.get(index, 0),
            index_cache=self._index_cache,
        )
        for cut in log.recovery.cut:
            logger.warning("%s: cut %d bytes at position %d: %s", cut.path, cut.bytes, cut.position, cut.reason)
        for damage in log.recovery.damaged:
            logger.error(
                "%s: damaged at position %d, what is there is not served: %s",
                damage.path,
                damage.position,
                damage.reason,
            )
        return Partition(entry.name, index, log)


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Turn what the disk refuses into the answer that clients understand."""
    try:
        yield
    except LogError as error:
        message = f"the disk refused: {error}; make room, then try again"
        raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
