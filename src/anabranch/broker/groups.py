"""The group coordinator at the edge: waiting requests as futures, stores as appends to `__consumer_offsets`.

The coordinator decides (`group/`); this carries out its effects in their order. State that is stored survives what the
log survives. A snapshot (`@groups.snapshot`) keeps the start from depending on the log's length: it holds the state
and the position from which the log must still be read. Replaying an entry twice is harmless (the last one wins), so
the position is that of the oldest store not yet answered.
"""

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from anabranch.broker.flush import Flusher
from anabranch.broker.group.coordinator import Coordinator
from anabranch.broker.group.effects import Effect, Reply, Store
from anabranch.broker.group.events import Abandoned, Event, Stored, Tick
from anabranch.broker.log.admission import Origin
from anabranch.broker.log.envelope import seal, unseal
from anabranch.broker.log.errors import LogError
from anabranch.broker.log.store import Store as Disk
from anabranch.broker.partition import Partition
from anabranch.broker.wire.batch import read_header
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.records import Record, build_batch, iterate_records
from anabranch.core.errors import UsageError

logger = logging.getLogger("anabranch.broker.groups")

SNAPSHOT: Final = "@groups.snapshot"
SNAPSHOT_MAGIC: Final = b"abgs"
SNAPSHOT_VERSION: Final = 1
_POSITION: Final = struct.Struct(">q")
READ_BYTES: Final = 1024 * 1024


class Groups:
    """All groups of this broker."""

    def __init__(self, coordinator: Coordinator, partition: Partition, flusher: Flusher, disk: Disk) -> None:
        self.coordinator = coordinator
        self._partition = partition
        self._flusher = flusher
        self._disk = disk
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._stores: deque[int] = deque()
        """Offsets of the stores that are not answered yet, oldest first."""
        self._token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def restore(self, now_ms: int) -> None:
        """Take up the state where the last broker on this folder left it.

        If the log was cut below the snapshot's position, offsets are about to be given a second time below it: a new
        snapshot is stored first, or the next start would skip what they hold.
        """
        log = self._partition.log
        position = self._load_snapshot()
        try:
            self.coordinator.restore(self._entries(max(position, log.log_start)), time.monotonic(), now_ms)
        except LogError as error:
            found = f"the groups' log is damaged ({error})"
            raise UsageError(f"{found}: restore __consumer_offsets and {SNAPSHOT} from a copy of the folder") from error
        if position > log.log_end:
            self._store_snapshot(log.log_end)

    async def ask(self, event: Callable[[int], Event]) -> Reply:
        """Hand a request to the coordinator under a new token and wait for its reply, however long that takes."""
        self._token += 1
        token = self._token
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        self.step(event(token))
        try:
            return await future
        except asyncio.CancelledError:
            if self._waiting.pop(token, None) is not None:
                self.step(Abandoned(token))
            raise

    def step(self, event: Event) -> None:
        """Let the coordinator decide about one event, and do what it says."""
        if self._closed:
            return
        events = deque([event])
        while events:
            for effect in self.coordinator.step(events.popleft(), time.monotonic(), time.time_ns() // 1_000_000):
                answer = self._carry_out(effect)
                if answer is not None:
                    events.append(answer)
        self._set_timer()

    def snapshot_if_long(self) -> None:
        """Store a snapshot and drop what it covers, once the log has more than one segment."""
        if self._partition.log.statistics().segments > 1:
            self.snapshot()

    def snapshot(self) -> None:
        """Store the state, and drop the part of the log that is not needed any more."""
        log = self._partition.log
        position = self._stores[0] if self._stores else log.log_end
        try:
            self._store_snapshot(position)
            log.delete_records(min(position, log.high_watermark))
        except LogError as error:
            logger.warning("the state of the groups could not be stored; the log has it all: %s", error)

    def close(self) -> None:
        """Take no more events; those who wait get no answer."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _carry_out(self, effect: Effect) -> Event | None:
        if isinstance(effect, Store):
            return self._store(effect)
        future = self._waiting.pop(effect.token, None)
        if future is not None and not future.done():
            future.set_result(effect)
        return None

    def _store(self, store: Store) -> Event | None:
        """Append; answer at once if nothing has to be waited for."""
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch([Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(store.entries)])
        try:
            appended = self._partition.log.append(batch, origin=Origin.COORDINATOR, now_ms=now_ms)
        except LogError as error:
            logger.warning("the state of a group could not be stored: %s", error)
            return Stored(store.token, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        future = self._partition.durable(appended.last_offset + 1)
        self._flusher.appended(self._partition)
        if future is None:
            return Stored(store.token, None)
        self._stores.append(appended.base_offset)
        future.add_done_callback(lambda done: self._stored(store, done))
        return None

    def _stored(self, store: Store, future: "asyncio.Future[ErrorCode]") -> None:
        self._stores.popleft()
        code = future.result()
        self.step(Stored(store.token, None if code is ErrorCode.NONE else ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.coordinator.next_deadline()
        if deadline is not None:
            delay = max(0.0, deadline - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self.step, Tick())

    def _load_snapshot(self) -> int:
        stored = self._disk.read_file(SNAPSHOT)
        if stored is None:
            return 0
        body = unseal(SNAPSHOT_MAGIC, SNAPSHOT_VERSION, stored, SNAPSHOT)
        if body is None:
            found = f"{SNAPSHOT} in the data folder is damaged, and with it committed offsets"
            raise UsageError(f"{found}: restore it from a copy, or remove it to go on with what the log still has")
        position: int = _POSITION.unpack_from(body)[0]
        self.coordinator.load_snapshot(body[_POSITION.size :])
        return position

    def _store_snapshot(self, position: int) -> None:
        body = _POSITION.pack(position) + self.coordinator.snapshot()
        self._disk.replace_file(SNAPSHOT, seal(SNAPSHOT_MAGIC, SNAPSHOT_VERSION, body))

    def _entries(self, position: int) -> Iterator[tuple[bytes, bytes | None]]:
        log = self._partition.log
        while position < log.log_end:
            data = memoryview(log.read(position, READ_BYTES, limit=log.log_end, at_least_one=True))
            place = 0
            while place < len(data):
                header = read_header(data, place)
                for record in iterate_records(data[place : place + header.size]):
                    if record.key is not None:
                        yield bytes(record.key), None if record.value is None else bytes(record.value)
                position = header.last_offset + 1
                place += header.size
