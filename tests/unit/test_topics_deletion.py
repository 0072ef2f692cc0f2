"""Deleting a topic while the disk is slow."""

import asyncio
from pathlib import Path

import pytest

from anabranch.broker.catalog import Catalog
from anabranch.broker.flush import Flusher
from anabranch.broker.log.admission import Origin
from anabranch.broker.log.disk import DiskStore
from anabranch.broker.log.errors import StorageFailed
from anabranch.broker.partition import Partition
from anabranch.broker.topics import TopicError, Topics
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.records import Record, build_batch
from anabranch.core.options import BrokerOptions


class SlowDisk(Flusher):
    """Lets a deletion wait for a sync as long as the test wants."""

    def __init__(self) -> None:
        super().__init__("os", 1.0)
        self.may_end = asyncio.Event()

    async def quiet(self, partition: Partition) -> None:
        await self.may_end.wait()


def test_a_name_cannot_be_taken_before_its_folder_is_gone(tmp_path: Path) -> None:
    """1. A deletion waits for a sync. 2. A producer that goes on has the topic created again. 3. The deletion goes on
    and removed the *new* topic's folder, with records that were acknowledged."""

    async def scenario() -> None:
        store, flusher = DiskStore(tmp_path), SlowDisk()
        topics = Topics(store, Catalog(store), BrokerOptions(), flusher, leader_epoch=1)
        topics.create("orders", 1, {}, 0)
        deletion = asyncio.create_task(topics.delete("orders"))
        await asyncio.sleep(0)
        with pytest.raises(TopicError, match="being deleted") as refused:
            topics.create("orders", 1, {}, 0)
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        flusher.may_end.set()
        await deletion
        made = topics.create("orders", 1, {}, 0)
        made.partitions[0].log.append(build_batch([Record(value=b"x")]), origin=Origin.CLIENT, now_ms=0)
        assert (tmp_path / "orders" / "0").is_dir()
        flusher.close()

    asyncio.run(scenario())


def test_a_closed_file_is_not_reopened_by_its_name(tmp_path: Path) -> None:
    """The repair of a deleted partition opened its files again by path, and found those of the topic made since."""
    store = DiskStore(tmp_path)
    file = store.create("segment")
    file.close()
    with pytest.raises(StorageFailed, match="closed"):
        file.write_at(b"x", 0)
