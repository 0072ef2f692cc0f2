"""A pipeline as it will run: what the builder hands to engines and the runtime. Values and functions, nothing open."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from anabranch.control.policy import PlanePolicy
    from anabranch.core.records import Record
    from anabranch.core.work import Task
    from anabranch.pipeline.queries import QueryPlan


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One `process` step with what stands before it, and, on the last one, what stands after it."""

    name: str
    handler: Callable[..., Any]
    """The user's function, `handler(value)` or `handler(value, ctx)`."""
    is_async: bool
    wants_context: bool
    concurrency: int
    timeout_s: float | None
    prepare: Callable[[Task], Any]
    """From the task to the handler's argument: decoding, maps and filters before this step, run inline; never waits.
    Answers FILTERED for a record that a filter drops; raises DecodeError (poison) or what the user's code raises."""
    finish: Callable[[Task, Any], Any] | None
    """From what the handler returned to the completion's value; may raise Poison. On the last step: encoded outputs (a
    Sequence[Output], with the origin headers). On others: the next step's value, where None ends the record as handled.
    """


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What is read, and from where on."""

    topics: tuple[str, ...]
    pattern: str | None = None
    """A regular expression over topic names instead of names."""
    start: Any = "committed"
    """committed, earliest, latest, a datetime / seconds since 1970, or {(topic, partition): offset}."""
    ordering_key: Callable[[Record], bytes | None] | None = None
    """None: the record's own key."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about a pipeline that does not depend on how it is run."""

    name: str
    """Also the consumer group."""
    read: ReadPlan
    steps: tuple[StepPlan, ...]
    policy: PlanePolicy
    sink_topic: str | None = None
    """Where outputs go unless they say otherwise; None when nothing is written. Queries read it."""
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None
    spark_only: tuple[str, ...] = ()
    """Steps that only Spark can run, by name: other engines refuse them at start."""
    labels: Mapping[str, str] = field(default_factory=dict)
    queries: tuple[QueryPlan, ...] = ()
    """What Spark does with the outputs, beside the lanes."""
    output_type: Any = None
    """What one output is, for the columns of the queries: a type, a schema, or Any. None where there are no queries."""

    def without_queries(self) -> Plan:
        """Return the plan as a member runs it: the queries are the driver's, and need not travel."""
        return replace(self, queries=(), output_type=None, spark_only=())
