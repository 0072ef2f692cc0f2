"""A source through outages of its broker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from restartable_broker import RestartableBroker
from source_listener import Listener
from topic_contents import committed, create, fill
from waiting import eventually

from anabranch.control.effects import Commit, Position
from anabranch.control.events import CommitEnded
from anabranch.core.work import TopicPartition
from anabranch.kafka.source import SourceFailed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("how", ["clean", "kill -9"])
def test_a_broker_that_restarts_costs_no_record(tmp_path: Path, how: str) -> None:
    """Records before, around and after the restart come once each, in order; commits are tried until they are taken."""
    name = TopicPartition("t", 0)
    with RestartableBroker(tmp_path, flush="always") as broker:
        create(broker.bootstrap, "t")
        fill(broker.bootstrap, "t", [b"%d" % number for number in range(100)])
        with Listener(broker.bootstrap, ["t"], "g") as listener:
            listener.wait_for_records(100)
            broker.end(how)
            eventually(lambda: listener.source.statistics()["unreachable_s"] > 0, "the outage to be noticed")
            broker.start()
            fill(broker.bootstrap, "t", [b"%d" % number for number in range(100, 200)])
            listener.wait_for_records(200)
            _commit_until_taken(listener, name, 200)
            eventually(lambda: listener.source.statistics()["unreachable_s"] == 0, "the end of the outage")
            assert not listener.all(SourceFailed)
            offsets = [record.offset for event in listener.all_fetched(name) for record in event.records]
            assert offsets == list(range(200))
        assert committed(broker.bootstrap, "g")[name][0] == 200


def test_a_commit_while_nobody_answers_is_an_error_and_not_a_success(tmp_path: Path) -> None:
    """A refused commit is never reported as done."""
    name = TopicPartition("t", 0)
    with RestartableBroker(tmp_path) as broker:
        create(broker.bootstrap, "t")
        fill(broker.bootstrap, "t", [b"x"])
        # A short session: the library holds a commit back for so long in the hope of a coordinator.
        with Listener(broker.bootstrap, ["t"], "g", session_timeout_s=1) as listener:
            listener.wait_for_records(1)
            broker.end("clean")
            eventually(lambda: listener.source.statistics()["unreachable_s"] > 0, "the outage to be noticed")
            listener.do(Commit({name: Position(1, -1, "")}, 5))
            ended = eventually(lambda: listener.all(CommitEnded), "the commit's answer")[0]
            assert ended.errors[name] is not None
            assert ended.number == 5
            broker.start()
            listener.wait_for_partitions(1)
            _commit_until_taken(listener, name, 1)


@pytest.mark.parametrize("on_beyond_end", ["halt", "log_end"])
def test_a_log_that_was_cut_back_and_written_on_is_noticed(tmp_path: Path, on_beyond_end: str) -> None:
    """Other records stand at offsets below the position: going on there would skip them, so it halts or reads them."""
    with RestartableBroker(tmp_path) as broker:
        create(broker.bootstrap, "t")
        for number in range(10):
            fill(broker.bootstrap, "t", [b"old %d" % number])
        with Listener(broker.bootstrap, ["t"], "g", on_beyond_end=on_beyond_end) as listener:
            listener.wait_for_records(10)
            broker.end("clean")
            log = next((tmp_path / "t" / "0").glob("*.log"))
            os.truncate(log, log.stat().st_size // 2)
            broker.start()
            fill(broker.bootstrap, "t", [b"new"] * 10)
            if on_beyond_end == "halt":
                assert "cut back to 5, below position 10" in str(listener.wait_for_failure())
            else:
                eventually(lambda: listener.values() == [b"new"] * 10, "what was written after the cut")
                assert listener.starts()[TopicPartition("t", 0)].position == 5


def _commit_until_taken(listener: Listener, name: TopicPartition, position: int) -> None:
    def taken() -> bool:
        ended = len(listener.all(CommitEnded))
        listener.do(Commit({name: Position(position, -1, "")}))
        return listener.wait_for_commit(ended + 1).errors[name] is None

    eventually(taken, "a commit to be taken")
