"""What the port to the disk promises, on both of its implementations."""

import os
import random
import resource
import signal
import threading
from pathlib import Path

import pytest

from anabranch.broker.log.admission import Origin
from anabranch.broker.log.config import LogConfig
from anabranch.broker.log.disk import DiskStore
from anabranch.broker.log.errors import StorageFailed
from anabranch.broker.log.partition import PartitionLog
from anabranch.broker.log.store import Store
from anabranch.broker.wire.records import Record, build_batch
from anabranch.testing.memory_store import Crashed, MemoryStore


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made: Store = DiskStore(tmp_path / "root", open_files_max=2) if request.param == "disk" else MemoryStore()
    made.make_directory("a/b")
    return made


def test_what_is_written_can_be_read(store: Store) -> None:
    """At any position; holes are zeros; reads end where the file ends."""
    file = store.create("a/b/f")
    file.write_at(b"hello", 0)
    file.write_at(memoryview(bytearray(b"world")), 8)
    assert (file.size(), file.read_at(0, 100), file.read_at(3, 4)) == (13, b"hello\0\0\0world", b"lo\0\0")
    assert (file.read_at(13, 10), file.read_at(99, 10)) == (b"", b"")
    file.truncate(2)
    file.sync()
    assert (file.size(), store.read_file("a/b/f"), store.read_file("a/b/f", 1)) == (2, b"he", b"h")
    file.close()


def test_names_come_and_go(store: Store) -> None:
    """Absent files and folders are answers where they can be; opening or creating nowhere is a storage failure."""
    assert store.list_directory("nowhere") == []
    assert store.read_file("a/b/none") is None
    store.remove("a/b/none")
    store.remove_directory("nowhere")
    store.create("a/b/one").close()
    store.create("a/b/two").write_at(b"2", 0)
    assert sorted(store.list_directory("a/b")) == ["one", "two"]
    store.rename("a/b/two", "a/b/one")
    store.sync_directory("a/b")
    assert (store.list_directory("a/b"), store.read_file("a/b/one")) == (["one"], b"2")
    store.create("a/b/one").close()
    assert store.read_file("a/b/one") == b""
    store.make_directory("a/b")
    store.remove_directory("a")
    assert store.list_directory("") == []
    with pytest.raises(StorageFailed):
        store.create("a/b/f")
    with pytest.raises(StorageFailed):
        store.open("a/b/f").size()


def test_a_small_file_is_replaced_whole(store: Store) -> None:
    """No temporary name is left."""
    store.replace_file("a/b/f", b"old")
    store.replace_file("a/b/f", b"newer")
    assert (store.read_file("a/b/f"), store.list_directory("a/b")) == (b"newer", ["f"])


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_open_files_are_bounded(tmp_path: Path) -> None:
    """A hundred logs in turn, eight descriptors: every byte arrives, and the process never has more of them open."""
    store = DiskStore(tmp_path, open_files_max=8)
    before = descriptors()
    logs = [PartitionLog.open(store, f"t/{number}", LogConfig(), leader_epoch=0, now_ms=0) for number in range(100)]
    for turn in range(3):
        for log in logs:
            log.append(build_batch([Record(value=bytes([turn]))]), origin=Origin.CLIENT, now_ms=0)
            assert store.open_files <= 8
    assert descriptors() <= before + 8
    for log in logs:
        assert len(log.read(0, 1000, limit=3, at_least_one=True)) == log.statistics().bytes
        log.close(clean=True)
    assert store.open_files == 0
    for number in range(100):
        log = PartitionLog.open(store, f"t/{number}", LogConfig(), leader_epoch=0, now_ms=0)
        assert (log.log_end, log.recovery.scanned) == (3, [])
    assert store.open_files == 0, "a clean log is opened without opening its segments"


def test_a_file_in_use_is_not_closed_under_its_user(tmp_path: Path) -> None:
    """Pinned files stay open beyond the bound, and close when the last user is done."""
    store = DiskStore(tmp_path, open_files_max=1)
    first, second = store.create("first"), store.create("second")
    descriptor = store.pin(first)
    second.write_at(b"x", 0)
    os.fstat(descriptor)
    assert store.open_files == 2
    first.close()
    os.fstat(descriptor)
    store.unpin(first)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert store.open_files == 1


def test_files_without_unsynced_writes_are_closed_first(tmp_path: Path) -> None:
    """An error of write-back is reported to descriptors that are open."""
    store = DiskStore(tmp_path, open_files_max=2)
    dirty, clean, third = store.create("dirty"), store.create("clean"), store.create("third")
    dirty.write_at(b"x", 0)
    clean.write_at(b"x", 0)
    clean.sync()
    third.write_at(b"x", 0)
    assert (dirty.descriptor >= 0, clean.descriptor) == (True, -1)


def test_many_threads_may_sync_and_read_while_one_writes(tmp_path: Path) -> None:
    """With two descriptors for six files, nobody finds a closed one."""
    store = DiskStore(tmp_path, open_files_max=2)
    files = [store.create(f"f{number}") for number in range(6)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(100):
                files[(number + turn) % 6].sync()
                files[(number + turn * 5) % 6].read_at(0, 10)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(300):
        files[turn % 6].write_at(b"0123456789", turn)
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.open_files <= 6


def test_a_write_that_the_system_refuses_is_a_storage_failure(tmp_path: Path) -> None:
    """A real short write and a real error: the file size limit of the process stands in for a full disk."""
    store = DiskStore(tmp_path)
    log = PartitionLog.open(store, "t/0", LogConfig(), leader_epoch=0, now_ms=0)
    batch = build_batch([Record(value=bytes(3000))])
    log.append(bytearray(batch), origin=Origin.CLIENT, now_ms=0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(StorageFailed, match="File too large"):
            log.append(bytearray(batch), origin=Origin.CLIENT, now_ms=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    path = tmp_path / "t/0" / ("0" * 20 + ".log")
    assert path.stat().st_size == len(batch), "the part that was written is cut off again"
    assert log.append(bytearray(batch), origin=Origin.CLIENT, now_ms=0).base_offset == 1
    log.close(clean=True)


def test_unsynced_writes_may_be_lost_torn_or_kept() -> None:
    """Over many seeds a crash shows every fate; synced bytes never change."""
    fates = set()
    for seed in range(100):
        store = MemoryStore()
        file = store.create("f")
        file.write_at(b"durable!", 0)
        file.sync()
        store.sync_directory("")
        file.write_at(b"AAAA", 8)
        file.write_at(b"BBBB", 12)
        store.crash(random.Random(seed))
        left = store.read_file("f") or b""
        assert left[:8] == b"durable!"
        fates.add(left[8:])
    assert {b"", b"AAAA", b"AAAABBBB", bytes(4) + b"BBBB", b"AAAA" + bytes(4)} <= fates
    assert any(0 < len(fate.strip(b"\0")) < 4 for fate in fates), "torn"


def test_unsynced_names_may_be_lost() -> None:
    """A created file may be gone, a removed one back, a replaced one old; never half of a rename."""
    seen = set()
    for seed in range(60):
        store = MemoryStore()
        store.replace_file("old", b"1")
        store.replace_file("gone", b"1")
        new = store.create("new")
        new.write_at(b"2", 0)
        new.sync()
        store.rename("new", "old")
        store.remove("gone")
        store.crash(random.Random(seed))
        seen.add(tuple((name, store.read_file(name)) for name in sorted(store.list_directory(""))))
    assert {state[-1] for state in seen if dict(state).get("old")} >= {("old", b"1"), ("old", b"2")}
    assert {"gone" in dict(state) for state in seen} == {True, False}


def test_a_crash_can_be_set_for_any_operation() -> None:
    """All that changes something counts; from then on nothing works until the machine is started again."""
    store = MemoryStore()
    file = store.create("f")
    store.crash_after(1)
    file.write_at(b"x", 0)
    with pytest.raises(Crashed):
        file.sync()
    with pytest.raises(Crashed):
        store.read_file("f")
    store.kill()
    assert store.read_file("f") == b"x"
    with pytest.raises(Crashed):
        file.read_at(0, 1)
