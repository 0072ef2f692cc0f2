"""A stop that meets a rebalance: the last commit stands behind the library's JoinGroup, and must come through all the
same.

A broker takes the requests of a connection one after another. A member that rejoins has its JoinGroup there, answered
when the last of the others has come; a commit behind it is read only then, and refused: the generation is another.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from runtime_topics import committed, log_ends, send
from waiting import eventually

from anabranch import Commit, Pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch import Broker

KEYS = 40
"""So many that each of the four partitions has some."""


@pytest.mark.parametrize("leave_static", [True, False], ids=["leaves", "is waited for"])
def test_what_was_settled_is_committed_by_a_stop_in_a_rebalance(
    anabranch_broker: Broker, anabranch_topic: str, tmp_path: Path, leave_static: bool
) -> None:
    """Two static members stop while partitions move. Whether the first frees its place or the group waits for it until
    its session ends: what the second had settled is committed, though its drain is long over.
    """
    bootstrap = anabranch_broker.bootstrap
    send(bootstrap, anabranch_topic, [(b"key %d" % number, b"quick") for number in range(KEYS)])
    quick = log_ends(bootstrap, anabranch_topic)
    send(bootstrap, anabranch_topic, [(b"key %d" % number, b"hangs") for number in range(KEYS)])
    group = f"group-{secrets.token_hex(4)}"
    hanging: list[int] = []
    let_go: set[int] = set()

    async def handle(value: bytes, ctx: Any) -> None:
        if value == b"hangs":
            hanging.append(ctx.partition)
            while ctx.partition not in let_go:
                await asyncio.sleep(0.01)

    lazy = Pipeline(group, commit=Commit(interval_s=3600))
    pipeline = lazy.read(anabranch_topic, bytes).process(handle, concurrency=KEYS)

    def start(member: str) -> Any:
        return pipeline.start(
            "async",
            bootstrap=bootstrap,
            state_dir=tmp_path / member,
            kafka={"group.instance.id": member, "heartbeat.interval.ms": "100"},
            member=member,
            session_timeout_s=6,
            leave_static=leave_static,
        )

    stays = start("stays")
    eventually(lambda: len(hanging) == KEYS, "calls hang in every partition")
    goes = start("goes")
    moving = eventually(lambda: _draining(stays), "partitions are to move")
    goes.stop()
    assert goes.join(30)
    let_go.update(moving)  # they are committed and given up; from here on the group waits for who has gone
    eventually(lambda: not _draining(stays), "they have moved")
    stays.stop(drain_s=0.1)
    assert stays.join(60)
    assert stays.result.exit_code == 5, "calls were cut off"
    ends = log_ends(bootstrap, anabranch_topic)
    assert committed(bootstrap, group) == {name: (ends if name[1] in moving else quick)[name] for name in quick}


def _draining(run: Any) -> list[int]:
    partitions = run.statistics()["partitions"].values()
    return [each["partition"] for each in partitions if each["phase"] != "owned"]
