"""Handlers that do what their record says, importable from any process.

Faults travel with the data: a record's value is a JSON object (see `contract_records`), so a test scripts each call of
each record, on an engine in this process or in another one. Files are how a test reaches into a running handler: a call
can wait, or fail, until a file exists; a stubborn one says by a file that it swallowed its cancellation.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from pathlib import Path
from typing import Any

from anabranch import Fatal, Poison, Record, RetryAfter

POLL_S = 0.005


async def obey(value: bytes, ctx: Any) -> Any:
    """Be the only step."""
    return await _act(json.loads(value or b"{}"), ctx)


async def first(value: bytes, ctx: Any) -> bytes:
    """Be the first of two steps; the second is given the same value."""
    await _act(json.loads(value).get("first", {}), ctx)
    return value


async def second(value: bytes, ctx: Any) -> Any:
    """Be the second of two steps."""
    return await _act(json.loads(value).get("second", {}), ctx)


def obey_plainly(value: bytes, ctx: Any) -> Any:
    """Be the only step, as a plain function: it blocks its thread and cannot be cancelled."""
    script = json.loads(value or b"{}")
    time.sleep(script.get("sleep_s", 0))
    while "hold_until" in script and not Path(script["hold_until"]).exists():
        time.sleep(POLL_S)
    return _end(script, ctx)


def is_wanted(value: bytes) -> bool:
    """Be a filter: drop records that say so."""
    return not json.loads(value).get("unwanted", False)


def account(record: Record) -> bytes | None:
    """Be an ordering key other than the record's own."""
    name = json.loads(record.value or b"{}").get("account")
    return None if name is None else str(name).encode()


def each_its_own(record: Record) -> bytes:
    """Be an ordering key that orders nothing."""
    return b"%d" % record.offset


async def _act(script: dict[str, Any], ctx: Any) -> Any:
    if "note" in script:
        _note(Path(script["note"]))
    if "sleep_s" in script:
        await asyncio.sleep(script["sleep_s"])
    if "hold_until" in script:
        await _hold(Path(script["hold_until"]), stubborn=script.get("stubborn", False))
    return _end(script, ctx)


def _note(path: Path) -> None:
    """Say by oneself that a call has begun, whatever the engine tells: when, CLOCK_MONOTONIC in ns, and where."""
    with path.open("ab", buffering=0) as notes:
        notes.write(b"%d %d\n" % (time.monotonic_ns(), os.getpid()))


async def _hold(released: Path, *, stubborn: bool) -> None:
    while not released.exists():
        try:
            await asyncio.sleep(POLL_S)
        except asyncio.CancelledError:
            if not stubborn:
                raise
            released.with_suffix(".cancelled").touch()


def _end(script: dict[str, Any], ctx: Any) -> Any:
    if ctx.attempt <= script.get("fail_times", 0):
        raise ConnectionError(f"told to fail {script['fail_times']} times, this is attempt {ctx.attempt}")
    if "fail_until" in script and not Path(script["fail_until"]).exists():
        raise ConnectionError(f"told to fail until {Path(script['fail_until']).name} exists")
    match script.get("raise"):
        case "poison":
            raise Poison("told to be poison")
        case "fatal":
            raise Fatal("told to be fatal")
        case "retry_after":
            if ctx.attempt == 1:
                raise RetryAfter(script["seconds"])
        case "value_error":
            raise ValueError("told to raise")
    return script.get("answer")


async def strict(value: bytes | None, ctx: Any) -> Any:
    """Be the only step, and take nothing but JSON objects."""
    script = json.loads(value)  # type: ignore[arg-type]  # a null value is meant to fail here
    return await _act(dict(script), ctx)


async def weather(value: bytes, ctx: Any) -> None:
    """Take up to 50 ms and fail once in a hundred calls: the handler of the storm."""
    await asyncio.sleep(random.random() * 0.05)
    if random.random() < 0.01:
        raise ConnectionError("bad weather")
