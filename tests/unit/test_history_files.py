"""Histories on disk: what was recorded is read back, whatever ended the process that wrote it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.core.errors import UsageError
from anabranch.core.history import Begun, Committed, Ended, Event, NullRecorder, Recorder, Sent, Settled
from anabranch.testing.history import EVENTS_PER_FRAME_MAX, HistoryWriter, MemoryHistory, Process, read_history

EVENTS: list[Event] = [
    Sent("orders", 0, 7, b"alice", 3),
    Sent("orders", None, None, None),
    Begun("worker", 2, "orders", 0, 7, b"alice", "charge"),
    Ended("worker", 2, "orders", 0, 7, b"alice", "charge", 1, "failed"),
    Settled("worker", 2, "orders", 0, 7, "dead"),
    Committed("worker", "billing", "orders", 0, 8),
]


def written(folder: Path, *batches: list[Event]) -> Path:
    with HistoryWriter(folder, "worker") as writer:
        for batch in batches:
            writer.record(batch)
    return writer.path


def events_of(folder: Path) -> list[Event]:
    return [event for batch in read_history(folder) for event in batch.events]


def test_what_was_recorded_is_read_back_with_its_types_and_order(tmp_path: Path) -> None:
    """Every kind of event, None included, comes back equal and as its own type."""
    path = written(tmp_path, EVENTS)
    back = events_of(tmp_path)
    assert back == EVENTS
    assert [type(event) for event in back] == [type(event) for event in EVENTS]
    assert path.name == f"worker-{os.getpid()}.history"


def test_one_batch_is_one_frame_with_one_time(tmp_path: Path) -> None:
    """Events of one call share their time; times of later calls are not earlier."""
    written(tmp_path, EVENTS[:2], EVENTS[2:])
    batches = list(read_history(tmp_path))
    assert [len(batch.events) for batch in batches] == [2, 4]
    assert batches[0].time_ns <= batches[1].time_ns
    assert batches[0].process == Process("worker", os.getpid())


def test_a_batch_above_the_frame_limit_is_split_and_complete(tmp_path: Path) -> None:
    """The bound on a frame loses nothing."""
    many: list[Event] = [Settled("worker", 1, "orders", 0, offset) for offset in range(EVENTS_PER_FRAME_MAX + 1)]
    written(tmp_path, many)
    assert events_of(tmp_path) == many
    assert len(list(read_history(tmp_path))) == 2


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    """Two writers that take turns are read in the order of their writing."""
    with HistoryWriter(tmp_path, "first") as first, HistoryWriter(tmp_path, "second") as second:
        for offset in range(10):
            (first if offset % 2 else second).record([Settled("worker", 1, "orders", 0, offset)])
    assert [event.offset for event in events_of(tmp_path) if isinstance(event, Settled)] == list(range(10))


def test_a_second_writer_of_the_same_process_gets_a_file_of_its_own(tmp_path: Path) -> None:
    """A process that records twice, or a process number used again, overwrites nothing."""
    first, second = written(tmp_path, EVENTS), written(tmp_path, EVENTS)
    assert first != second
    assert len(events_of(tmp_path)) == 2 * len(EVENTS)
    assert len(set(read_history(tmp_path).processes)) == 2


def test_any_prefix_of_a_file_is_tolerated_and_told(tmp_path: Path) -> None:
    """A killed process leaves a prefix: whole frames are read, a torn one is counted, nothing is an error."""
    path = written(tmp_path, EVENTS[:1], EVENTS[1:])
    whole = path.read_bytes()
    counts = set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        history = read_history(tmp_path)
        counts.add((sum(len(batch.events) for batch in history), history.torn))
    assert counts == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_flipped_byte_anywhere_in_the_middle_is_an_error(tmp_path: Path) -> None:
    """Damage is never read as something else, and a damaged length never passes for a torn end."""
    path = written(tmp_path, EVENTS[:1], EVENTS[1:])
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        path.write_bytes(damaged)
        with pytest.raises(UsageError):
            events_of(tmp_path)


def test_an_unknown_version_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """A format that this release does not know is not guessed at."""
    (tmp_path / "worker-1.history").write_bytes(b"anabranch-history 2\nwhatever")
    with pytest.raises(UsageError, match="format version 2, not 1: use the release that wrote it"):
        read_history(tmp_path)


def test_a_foreign_file_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    """No history is not an empty history."""
    with pytest.raises(UsageError, match=r"no \*\.history files"):
        read_history(tmp_path)
    (tmp_path / "worker-1.history").write_bytes(b"something else\n")
    with pytest.raises(UsageError, match="is not a history"):
        read_history(tmp_path)


def test_a_member_name_that_is_no_file_name_is_refused(tmp_path: Path) -> None:
    """A member cannot name its way out of the folder."""
    with pytest.raises(UsageError, match="becomes a file name"):
        HistoryWriter(tmp_path, "../worker")


def test_a_closed_writer_refuses_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    """What cannot be recorded is told, never dropped."""
    writer = HistoryWriter(tmp_path, "worker")
    writer.close()
    writer.close()
    with pytest.raises(UsageError, match="open a new HistoryWriter"):
        writer.record(EVENTS)


def test_a_full_disk_is_told_and_ends_the_writer(tmp_path: Path) -> None:
    """After a frame that could not be written whole nothing more is appended behind it."""
    writer = HistoryWriter(tmp_path, "worker")
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), writer._file)
    with pytest.raises(UsageError, match="make room for it"):
        writer.record(EVENTS)
    with pytest.raises(UsageError, match="open a new HistoryWriter"):
        writer.record(EVENTS)


def test_recorders_say_whether_they_want_events(tmp_path: Path) -> None:
    """A caller need not make events for a recorder that drops them."""
    memory = MemoryHistory("worker", now_ns=5)
    with HistoryWriter(tmp_path, "worker") as writer:
        recorders: list[Recorder] = [NullRecorder(), memory, writer]
        for recorder in recorders:
            recorder.record(EVENTS)
    assert [recorder.enabled for recorder in recorders] == [False, True, True]
    assert [(batch.time_ns, list(batch.events)) for batch in memory] == [(5, EVENTS)]


CHILD = """
import sys
from anabranch.core.history import Begun
from anabranch.testing.history import HistoryWriter

writer = HistoryWriter(sys.argv[1], "worker")
offset = 0
while True:
    writer.record([Begun("worker", 1, "orders", 0, offset + n, b"alice", "charge") for n in range(3)])
    offset += 3
    if offset % 300 == 0:
        print(offset, flush=True)
"""


def test_all_that_was_recorded_before_kill_9_is_read_back(tmp_path: Path) -> None:
    """A child that is killed while it records has lost nothing of what it said it had recorded."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as lines:
        said = [int(lines.readline()) for _ in range(5)][-1]
        child.send_signal(signal.SIGKILL)
        said = max([said, *(int(line) for line in lines if line.endswith("\n"))])
    assert child.wait() == -signal.SIGKILL
    offsets = [event.offset for event in events_of(tmp_path) if isinstance(event, Begun)]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) >= said


def test_a_forked_child_cannot_write_into_its_parents_file(tmp_path: Path) -> None:
    """One file is one process: a child that inherits a writer is told to open its own."""
    with HistoryWriter(tmp_path, "worker") as writer:
        writer._pid += 1
        with pytest.raises(UsageError, match="open a HistoryWriter in each process"):
            writer.record(EVENTS)
