"""What an engine tells the history: calls that are about to begin, and calls that have really ended.

`Begun` is told for a whole submit at once, before any call of it runs; `Ended` for a whole batch, before anyone hears
of it. When nobody records, none of these events is even made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.core.history import Begun, Ended
from anabranch.core.policies import Ordering

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.core.history import Recorder
    from anabranch.core.records import Record
    from anabranch.core.work import Completion, Task
    from anabranch.pipeline.plan import Plan

PARTITION_KEY: Final = b""
"""The ordering key, in a history, of every record of a pipeline that orders by partition."""
NULL_KEY: Final = b"\x00null"
"""The ordering key, in a history, of records without a key that keep their order."""


class Recording:
    """The calls of one engine, as a history names them."""

    __slots__ = ("_keys", "_member", "_recorder", "_steps", "enabled")

    def __init__(self, plan: Plan, recorder: Recorder, member: str) -> None:
        self._recorder = recorder
        self._member = member
        self._steps = [step.name for step in plan.steps]
        self._keys = history_keys(plan)
        self.enabled = recorder.enabled

    def begin(self, tasks: Sequence[Task]) -> None:
        """Tell that the calls of these tasks are about to begin."""
        member, steps, keys = self._member, self._steps, self._keys
        self._recorder.record(
            [
                Begun(member, task.epoch, *record[:3], keys(record), steps[task.step], task.attempt)
                for task in tasks
                for record in (task.record,)
            ]
        )

    def end(self, completions: Sequence[Completion]) -> None:
        """Tell that these calls have really ended."""
        member, steps, keys = self._member, self._steps, self._keys
        self._recorder.record(
            [
                Ended(
                    member,
                    task.epoch,
                    *record[:3],
                    keys(record),
                    steps[task.step],
                    task.attempt,
                    "done" if completion.error is None else "failed",
                )
                for completion in completions
                for task in (completion.task,)
                for record in (task.record,)
            ]
        )


def history_keys(plan: Plan) -> Callable[[Record], bytes | None]:
    """Give the function from a record to its ordering key, as a history names it: None means no order."""
    if plan.policy.ordering is Ordering.NONE:
        return lambda _record: None
    if plan.policy.ordering is Ordering.PARTITION:
        return lambda _record: PARTITION_KEY
    null_key = NULL_KEY if plan.policy.null_key_ordered else None
    own = plan.read.ordering_key

    def key_of(record: Record) -> bytes | None:
        key = record.key if own is None else own(record)
        return null_key if key is None else key

    return key_of
