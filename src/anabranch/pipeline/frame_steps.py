"""The DataFrame steps of a draft: where they may stand, and what they add to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import UsageError
from anabranch.pipeline.queries import EVERY_S, QueryPlan, checked_every, checked_transform, query_name

if TYPE_CHECKING:
    from anabranch.pipeline.draft import Draft
    from anabranch.pipeline.queries import Sink


def with_transform(draft: Draft, function: Any, schema: Any) -> Draft:
    """Return the draft with one more function between the outputs and the next query."""
    _refuse_without_process(draft, "transform")
    draft = _with_schema(draft, "transform", schema)
    return replace(draft, transforms=(*draft.transforms, checked_transform(function)))


def with_query(
    draft: Draft, step: str, sink: Sink, *, name: str | None = None, every_s: Any = EVERY_S, schema: Any = None
) -> Draft:
    """Return the draft with one more query."""
    _refuse_without_process(draft, step)
    query = QueryPlan(
        name=query_name(name, sink, (query.name for query in draft.queries)),
        step=step,
        transforms=draft.transforms,
        sink=sink,
        every_s=checked_every(every_s, step),
    )
    draft = _with_schema(draft, step, schema)
    return replace(draft, queries=(*draft.queries, query))


def to_be_streamed(draft: Draft, schema: Any) -> Draft:
    """Return the draft whose outputs are wanted as a DataFrame; refuse one that no run would ever write."""
    _refuse_without_process(draft, "stream")
    if draft.output_topic is None:
        raise UsageError(
            "stream: what the handlers return is written nowhere; add .write(topic): a run then fills the topic, "
            "and the stream reads it"
        )
    return draft if schema is None else replace(draft, schema=schema)


def refuse_behind_frames(draft: Draft, step: str) -> None:
    """Refuse a step on single values where the flow has become a DataFrame."""
    if draft.transforms or draft.queries:
        last = draft.queries[-1].step if draft.queries else "transform"
        raise UsageError(
            f"{step}: behind .{last}(…) the flow is a DataFrame; put .{step}(…) before it, "
            "or write to a topic that a second pipeline reads"
        )


def _refuse_without_process(draft: Draft, step: str) -> None:
    if draft.read is None:
        raise UsageError(f"{step}: there is nothing to {step} yet; begin with .read(topic)")
    if not draft.processes:
        raise UsageError(
            f"{step}: gets the outputs of a handler, and there is none; put .process(handler) before it, or read "
            "the topic itself with spark.readStream.format('anabranch')"
        )


def _with_schema(draft: Draft, step: str, schema: Any) -> Draft:
    if schema is None or schema == draft.schema:
        return draft
    if draft.schema is not None or draft.transforms or draft.queries:
        raise UsageError(f"{step}(schema=…): give it to the first DataFrame step behind the handler, and only there")
    return replace(draft, schema=schema)
