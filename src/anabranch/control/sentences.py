"""Words for records and errors, as halts and `why` use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.control.lanes import Lane, LaneState

if TYPE_CHECKING:
    from anabranch.core.work import Task

KEY_CHARACTERS_MAX = 40
ERROR_CHARACTERS_MAX = 200


def name_key(key: bytes | None) -> str:
    """Show a key, shortened."""
    if key is None:
        return "no key"
    try:
        text = repr(key.decode())
    except UnicodeDecodeError:
        text = repr(key)
    if len(text) > KEY_CHARACTERS_MAX:
        text = text[: KEY_CHARACTERS_MAX - 1] + "…"
    return f"key {text}"


def name_record(task: Task) -> str:
    """Say which record it is."""
    record = task.record
    return f"{record.topic}/{record.partition} offset {record.offset} ({name_key(record.key)})"


def brief(error: BaseException) -> str:
    """Give an error's type and the first line of what it says."""
    try:
        lines = str(error).splitlines()
    except Exception:  # a handler's own exception class may be broken; its name still says something
        lines = []
    text = f"{type(error).__name__}: {lines[0]}" if lines and lines[0] else type(error).__name__
    return text if len(text) <= ERROR_CHARACTERS_MAX else text[: ERROR_CHARACTERS_MAX - 1] + "…"


def seconds(duration_s: float) -> str:
    """Show a duration."""
    return f"{max(0.0, duration_s):.1f} s"


def describe(task: Task, now: float) -> str:
    """Say which record it is, what it is doing, and what it has been through."""
    lane: Lane = task.lane
    text = f"{name_record(task)} in step {lane.step.name!r} {_doing(lane, task, now)}"
    if lane.failure is not None and lane.failure[0] == task.ordinal:
        text += f"; last error {lane.failure[1]}"
    if task.step or task.attempt:
        text += f"; age {seconds(now - task.first_begun_at)}"
    return text


def _doing(lane: Lane, task: Task, now: float) -> str:
    made = f"{task.attempt} attempt{'' if task.attempt == 1 else 's'} so far"
    match lane.state:
        case LaneState.RUNNING:
            return f"runs its attempt {task.attempt} since {seconds(now - task.begun_at)}"
        case LaneState.WAITING:
            return f"waits for a retry, {made}, next attempt in {seconds(lane.due - now)}"
        case LaneState.WRITING:
            return "waits for its outputs to be acknowledged"
        case LaneState.DYING:
            return f"waits for its dead letter to be acknowledged, {made}"
        case LaneState.FENCED:
            return "waits for the end of a call for the same key that was begun before the partition moved"
        case _ if not lane.step.breaker.is_closed:
            return f"waits for the breaker to close, {made}"
        case _:
            return f"is ready and waits for a free slot ({lane.step.running} of {lane.step.concurrency} calls run)"
