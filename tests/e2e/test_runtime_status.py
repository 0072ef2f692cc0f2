"""What a run tells about itself: statistics from any thread, and the status socket."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import stat
import threading
from typing import TYPE_CHECKING, Any

import pytest
from runtime_topics import numbered, send
from waiting import eventually

from anabranch import Breaker, Pipeline, Retry
from anabranch.core.errors import UsageError
from anabranch.runtime.status import ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anabranch import Broker
    from anabranch.runtime.run import Run


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A folder whose sockets have longer names than the kernel takes."""
    return tmp_path / ("state-" + "x" * 90)


@pytest.fixture
def stuck(anabranch_broker: Broker, anabranch_topic: str, state_dir: Path) -> Iterator[Run]:
    """A run in which one key fails for ever."""
    send(anabranch_broker.bootstrap, anabranch_topic, numbered(4, 25))

    async def handle(_value: bytes, ctx: Any) -> None:
        await asyncio.sleep(0)
        if ctx.key == b"key-2":
            raise ConnectionError("the other side is down")

    retry = Retry(attempts=None, initial_s=0.5, max_s=0.5)
    pipeline = Pipeline(f"group-{secrets.token_hex(4)}").read(anabranch_topic, bytes)
    run = pipeline.process(handle, name="call", retry=retry, breaker=Breaker(enabled=False)).start(
        "async", bootstrap=anabranch_broker.bootstrap, state_dir=state_dir, member="m1"
    )
    eventually(lambda: run.statistics()["handled"] == 75, "all but the stuck key are handled")
    yield run
    run.stop(drain_s=0)
    assert run.join(30)


def test_statistics_are_plain_values_and_can_be_asked_for_from_any_thread(stuck: Run) -> None:
    """JSON holds them; the plane's own stand at the top, those of the parts under their names."""
    answers: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: answers.append(stuck.statistics())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    for answer in answers:
        assert json.loads(json.dumps(answer)) == answer
        assert answer["state"] == "running"
        assert answer["member"] == "m1"
        assert answer["pid"] == os.getpid()
        assert answer["settled"] == answer["handled"] == 75
        assert len(answer["partitions"]) == 4
        assert answer["steps"]["call"]["waiting_lanes"] in {0, 1}
        assert answer["engine"]["call"]["calls"] > 75
        assert answer["source"]["records"] == 100
        assert answer["lost_to_retention"] == 0


def test_received_bytes_are_told_when_they_are_asked_for(
    anabranch_broker: Broker, anabranch_topic: str, tmp_path: Path
) -> None:
    """What came over the network, all of it: at least the values that were handled."""
    send(anabranch_broker.bootstrap, anabranch_topic, [(b"%d" % number, bytes(1000)) for number in range(100)])

    async def handle(_value: bytes) -> None: ...

    pipeline = Pipeline(f"group-{secrets.token_hex(4)}").read(anabranch_topic, bytes).process(handle)
    told = {"bootstrap": anabranch_broker.bootstrap, "state_dir": tmp_path}
    run = pipeline.start("async", kafka={"statistics.interval.ms": 20}, **told)
    eventually(lambda: (run.statistics()["source"].get("received_bytes") or 0) >= 100_000, "all bytes are counted")
    assert run.statistics()["source"]["received_bytes"] < 300_000
    run.stop()
    assert run.join(30)
    silent = pipeline.start("async", until="end", **told)
    assert silent.join(30)
    assert silent.statistics()["source"]["received_bytes"] is None


def test_why_is_told_with_an_age_that_grows(stuck: Run) -> None:
    """Ages are those of now, also when nothing happens."""

    def age() -> float:
        ages = [each["blocker_age_s"] for each in stuck.statistics()["partitions"].values()]
        return max(each or 0.0 for each in ages)

    before = age()
    eventually(lambda: age() > before, "it is older")
    assert any("key-2" in sentence for sentence in stuck.statistics()["why"])


def test_the_status_socket_answers_whoever_connects_and_is_only_for_its_owner(stuck: Run, state_dir: Path) -> None:
    """One JSON object a connection; mode 0600; as many as ask."""
    path = state_dir / f"{os.getpid()}.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for _ in range(3):
        answer = ask(path)
        assert answer["group"] == stuck.statistics()["group"]
        assert any("key-2" in sentence for sentence in answer["why"])


def test_one_that_connects_and_goes_away_harms_nobody(stuck: Run, state_dir: Path) -> None:
    """It does not read its answer; the next one gets one all the same."""
    folder = os.open(state_dir, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(f"/proc/self/fd/{folder}/{os.getpid()}.sock")
    finally:
        os.close(folder)
    assert ask(state_dir / f"{os.getpid()}.sock")["state"] == "running"


def test_the_socket_is_gone_when_the_run_has_ended(
    anabranch_broker: Broker, anabranch_topic: str, state_dir: Path
) -> None:
    """And the last statistics can still be asked for."""

    async def handle(_value: bytes) -> None: ...

    pipeline = Pipeline(f"group-{secrets.token_hex(4)}").read(anabranch_topic, bytes).process(handle)
    run = pipeline.start("async", bootstrap=anabranch_broker.bootstrap, state_dir=state_dir, until="end")
    assert run.join(30)
    assert list(state_dir.iterdir()) == []
    assert run.statistics()["state"] == "ended"


def test_no_empty_folder_is_left_where_none_was_asked_for(
    anabranch_broker: Broker, anabranch_topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's folder goes with its last socket, `.anabranch` with its last folder; whatever else is there stays."""
    monkeypatch.chdir(tmp_path)

    async def handle(_value: bytes) -> None: ...

    def run_once() -> None:
        pipeline = Pipeline("tidy").read(anabranch_topic, bytes).process(handle)
        assert pipeline.start("async", bootstrap=anabranch_broker.bootstrap, until="end").join(30)

    run_once()
    assert list(tmp_path.iterdir()) == []
    other = tmp_path / ".anabranch" / "tidy" / "other"
    other.mkdir(parents=True)
    run_once()
    assert list(tmp_path.rglob("*")) == [*reversed(other.parents[:2]), other]


def test_a_socket_that_a_killed_process_left_is_taken_over_and_a_living_one_is_not(
    anabranch_broker: Broker, anabranch_topic: str, tmp_path: Path
) -> None:
    """Two runs of one process in one folder have two sockets; a stale file is in nobody's way."""
    send(anabranch_broker.bootstrap, anabranch_topic, [(b"a", b"1")])
    stale = tmp_path / f"{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stale))

    async def handle(_value: bytes) -> None: ...

    def start() -> Run:
        pipeline = Pipeline(f"group-{secrets.token_hex(4)}").read(anabranch_topic, bytes).process(handle)
        return pipeline.start("async", bootstrap=anabranch_broker.bootstrap, state_dir=tmp_path)

    with pytest.raises(ConnectionRefusedError):
        ask(stale)
    runs = [start()]
    eventually(lambda: runs[0].statistics()["handled"], "the first one runs")
    runs.append(start())
    eventually(lambda: runs[1].statistics()["handled"], "the second one runs")
    second = tmp_path / f"{os.getpid()}-2.sock"
    assert ask(stale)["group"] == runs[0].statistics()["group"]
    assert ask(second)["group"] == runs[1].statistics()["group"]
    for run in runs:
        run.stop()
    for run in runs:
        assert run.join(30)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused_before_the_group_is_joined(
    anabranch_broker: Broker, anabranch_topic: str, tmp_path: Path
) -> None:
    """A UsageError that names the option."""
    (tmp_path / "file").write_text("not a folder")

    async def handle(_value: bytes) -> None: ...

    pipeline = Pipeline(f"group-{secrets.token_hex(4)}").read(anabranch_topic, bytes).process(handle)
    run = pipeline.start("async", bootstrap=anabranch_broker.bootstrap, state_dir=tmp_path / "file" / "state")
    with pytest.raises(UsageError, match="state_dir"):
        run.join(30)
