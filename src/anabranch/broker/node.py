"""One broker's state, put together: what the API handlers are given. Knows no sockets."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from anabranch.broker.budget import ANSWER_BYTES_MAX
from anabranch.broker.catalog import Catalog
from anabranch.broker.flush import Flusher
from anabranch.broker.group.coordinator import Coordinator
from anabranch.broker.group.events import ForgetTopics, Truncated
from anabranch.broker.group.options import GroupOptions
from anabranch.broker.groups import Groups
from anabranch.broker.log.store import Store
from anabranch.broker.partition import Partition
from anabranch.broker.topics import OFFSETS_TOPIC, Topics
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.core.options import BrokerOptions

HOUSEKEEPING_INTERVAL_S: Final = 10.0
"""How often retention and the age of segments are looked at. Kafka's default is five minutes; a look costs little."""


class Node:
    """The topics, the groups and the catalog of one broker. Lives on one event loop."""

    def __init__(self, options: BrokerOptions, store: Store) -> None:
        self.options = options
        self.advertised: tuple[str, int] = ("", 0)
        """Host and port that clients are told to use."""
        self.answer_bytes_max: Callable[[], int] = lambda: ANSWER_BYTES_MAX
        """How large an answer to a fetch may be; the server says less when clients do not read."""
        self.catalog = Catalog(store)
        self.leader_epoch = self.catalog.raise_leader_epoch()
        self.flusher = Flusher(options.flush, options.flush_interval_s)
        self.topics = Topics(store, self.catalog, options, self.flusher, self.leader_epoch)
        self.topics.open(self.now_ms())
        offsets = self.topics.partition(OFFSETS_TOPIC, 0)
        assert offsets is not None, "opening the topics creates it"
        self.groups = Groups(Coordinator(_group_options(options)), offsets, self.flusher, store)
        self.groups.restore(self.now_ms())
        self._housekept_at = time.monotonic()

    def start(self) -> None:
        """Begin what needs the loop: timers, and commits that no longer fit the logs (topic gone, log cut)."""
        self.flusher.start()
        for partition in self.topics.partitions():
            if partition.log.failed:
                self.flusher.repair_later(partition)
        gone = [name for name in self.groups.coordinator.committed_topics() if self.topics.get(name) is None]
        self.groups.step(ForgetTopics(tuple(gone)))
        self.groups.step(Truncated(tuple(self._log_ends())))

    def now_ms(self) -> int:
        """Answer the wall clock, as records have it."""
        return time.time_ns() // 1_000_000

    def check_leader_epoch(self, epoch: int) -> ErrorCode:
        """Answer whether a client's idea of the leader epoch is ours; -1 means that it has none."""
        if epoch in (-1, self.leader_epoch):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def appended(self, partition: Partition) -> None:
        """Take note of an append by a client."""
        self.flusher.appended(partition)
        if not partition.log.config.wait_for_sync:
            partition.moved()

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and what was committed on it."""
        await self.topics.delete(name)
        self.groups.step(ForgetTopics((name,)))

    def tick(self) -> None:
        """Do what is done by the clock, about once a second."""
        self.groups.snapshot_if_long()
        now = time.monotonic()
        if now - self._housekept_at >= HOUSEKEEPING_INTERVAL_S:
            self._housekept_at = now
            self.topics.housekeep(self.now_ms())

    async def close(self) -> None:
        """Stop cleanly: let syncs end, store the groups' state, close the logs. The groups were closed before."""
        await self.flusher.join()
        self.groups.snapshot()
        self.topics.close(clean=True)
        self.flusher.close()

    def _log_ends(self) -> Iterator[tuple[str, int, int]]:
        for partition in self.topics.partitions():
            yield partition.topic, partition.index, partition.log.log_end


def _group_options(options: BrokerOptions) -> GroupOptions:
    return GroupOptions(
        session_timeout_s_min=options.session_timeout_s_min,
        session_timeout_s_max=options.session_timeout_s_max,
        rebalance_delay_s=options.rebalance_delay_s,
        group_members_max=options.group_members_max,
        groups_max=options.groups_max,
        offsets_retention_s=options.offsets_retention_s,
    )
