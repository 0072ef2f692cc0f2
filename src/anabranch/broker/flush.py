"""Bring logs to disk, off the loop: many requests share one fdatasync.

One sync per partition is under way at a time. Appends that come meanwhile wait for the next one, which begins when the
last has ended and takes all of them: the slower the disk, the larger the group. Modes:

- always: every append asks for a sync; the high watermark rises when it has ended.
- interval: what was appended is synced once per interval; nobody waits for it.
- os: only what must reach the disk in order is synced: segments that are complete, so that recovery can trust them.

After a failed sync the partition refuses writes. Asking the disk again proves nothing (Linux forgets the pages that it
could not write), so its tail is re-read and rewritten to a new file by `repair`, once per `REPAIR_INTERVAL_S`.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from anabranch.broker.log.errors import LogError, StorageFailed
from anabranch.broker.log.sync import SyncJob
from anabranch.broker.partition import Partition
from anabranch.broker.wire.error_codes import ErrorCode

logger = logging.getLogger("anabranch.broker.flush")

SYNC_THREADS: Final = 4
"""A disk answers several syncs at once about as fast as one; more threads only help on arrays of disks."""
REPAIR_INTERVAL_S: Final = 1.0


class Flusher:
    """Runs the sync jobs of all partitions in a few threads and tells the logs how they ended."""

    def __init__(self, mode: str, interval_s: float) -> None:
        self._mode = mode
        self._interval_s = interval_s
        self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="anabranch-sync")
        self._waiting: set[Partition] = set()
        self._repairs: dict[Partition, asyncio.TimerHandle] = {}
        self._forgotten: set[Partition] = set()
        """Deleted while a sync was under way; dropped from here when it ends."""
        self._under_way: dict[Partition, asyncio.Future[None]] = {}
        self.syncs = 0

    def appended(self, partition: Partition) -> None:
        """Take note of an append; never blocks."""
        if self._mode == "interval":
            self._waiting.add(partition)
        else:
            self._begin(partition)

    def start(self) -> None:
        """Begin to sync by the clock, in the mode that does."""
        if self._mode == "interval":
            asyncio.get_running_loop().call_later(self._interval_s, self._interval_passed)

    def _interval_passed(self) -> None:
        for partition in list(self._waiting):
            if partition not in self._under_way:
                self._waiting.discard(partition)
                self._begin(partition)
        self.start()

    def forget(self, partition: Partition) -> None:
        """Do nothing more for a partition whose topic is deleted, apart from the sync that is under way."""
        self._waiting.discard(partition)
        if partition in self._under_way:
            self._forgotten.add(partition)
        repair = self._repairs.pop(partition, None)
        if repair is not None:
            repair.cancel()

    async def quiet(self, partition: Partition) -> None:
        """Wait until no sync of this partition is under way."""
        while (future := self._under_way.get(partition)) is not None:
            await asyncio.wait([future])

    async def join(self) -> None:
        """Wait until no sync is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way.values())

    def close(self) -> None:
        """End the threads; what is under way has been joined."""
        for repair in self._repairs.values():
            repair.cancel()
        self._threads.shutdown(wait=True)

    def _begin(self, partition: Partition) -> None:
        if partition in self._under_way or partition.log.failed:
            return
        job = partition.log.begin_sync(sealed_only=self._mode == "os")
        if job is None:
            return
        future = asyncio.get_running_loop().run_in_executor(self._threads, job.run)
        self._under_way[partition] = future
        future.add_done_callback(lambda done: self._ended(partition, job, done))

    def _ended(self, partition: Partition, job: SyncJob, future: asyncio.Future[None]) -> None:
        del self._under_way[partition]
        if partition in self._forgotten:
            self._forgotten.discard(partition)
            return
        self.syncs += 1
        error = future.exception()
        if error is not None and not isinstance(error, Exception):
            error = StorageFailed(f"the sync ended with {error!r}")
        partition.log.end_sync(job, error)
        if error is not None:
            logger.error(
                "%s/%d could not be synced, it refuses writes until repaired: %s",
                partition.topic,
                partition.index,
                error,
            )
            partition.failed(ErrorCode.KAFKA_STORAGE_ERROR)
            self.repair_later(partition)
            return
        partition.moved()
        if self._mode != "interval":
            self._begin(partition)  # what came meanwhile

    def repair_later(self, partition: Partition) -> None:
        """Try to repair a partition whose sync has failed, now or before the last stop."""
        loop = asyncio.get_running_loop()
        self._repairs[partition] = loop.call_later(REPAIR_INTERVAL_S, self._repair, partition)

    def _repair(self, partition: Partition) -> None:
        del self._repairs[partition]
        try:
            partition.log.repair()
        except LogError as error:
            logger.warning("%s/%d is still failed: %s", partition.topic, partition.index, error)
            self.repair_later(partition)
        else:
            logger.warning("%s/%d was repaired: its tail was rewritten, writes go on", partition.topic, partition.index)
            partition.moved()
