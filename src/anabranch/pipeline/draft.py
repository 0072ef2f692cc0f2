"""What the builder has been told so far: plain frozen parts, and the rules that hold between them.

`Pipeline` makes a new draft at each step and has it checked; `compile`, `explain` and `repr` read it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import UsageError
from anabranch.core.policies import Breaker, Commit, DeadLetters, Gate, Ordering, Retry
from anabranch.pipeline.handlers import name_of
from anabranch.pipeline.names import check_topic
from anabranch.pipeline.queries import TopicSink

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from anabranch.pipeline.decoding import Decode
    from anabranch.pipeline.handlers import Handler
    from anabranch.pipeline.queries import QueryPlan


@dataclass(frozen=True, slots=True)
class Read:
    """What is read, from where on, and which records keep their order."""

    topics: tuple[str, ...]
    pattern: str | None
    decoding: Decoding
    key: Callable[[Any], Any] | None
    start: Any
    ordering: Ordering | None
    """None: not chosen here."""
    null_key_ordered: bool


@dataclass(frozen=True, slots=True)
class Decoding:
    """Bytes become a value."""

    decode: Decode
    label: str
    is_bytes: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """Records that do not pass are settled without a call."""

    function: Callable[[Any], Any]
    label: str


@dataclass(frozen=True, slots=True)
class Map:
    """A value becomes another, inline."""

    function: Callable[[Any], Any]
    label: str


@dataclass(frozen=True, slots=True)
class Process:
    """A handler is called, with all that may go wrong."""

    name: str
    handler: Handler
    concurrency: int
    timeout_s: float | None
    retry: Retry
    breaker: Breaker
    ordering: Ordering | None


Step = Decoding | Filter | Map | Process


@dataclass(frozen=True, slots=True)
class Draft:
    """A pipeline on its way; it may not be complete."""

    name: str
    commit: Commit = field(default_factory=Commit)
    gate: Gate = field(default_factory=Gate)
    read: Read | None = None
    steps: tuple[Step, ...] = ()
    sink: str | None = None
    dead_letters: DeadLetters | None = None
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None
    transforms: tuple[Callable[[Any], Any], ...] = ()
    """What stands between the outputs and the next query."""
    queries: tuple[QueryPlan, ...] = ()
    schema: Any = None
    """What the outputs are, for the queries; None: what the last handler is annotated to return."""

    @property
    def processes(self) -> tuple[Process, ...]:
        """The steps that call a handler."""
        return tuple(step for step in self.steps if isinstance(step, Process))

    @property
    def ordering(self) -> Ordering:
        """The ordering that was chosen anywhere, else by key."""
        chosen = self._orderings()
        return chosen[0][1] if chosen else Ordering.KEY

    @property
    def output_topic(self) -> str | None:
        """The topic that the handlers' outputs go to: the one that `.write` names, else one of the queries' own."""
        if self.sink is not None or not self.queries:
            return self.sink
        return f"{self.name}.{self.processes[-1].name}"

    def missing(self) -> str | None:
        """Say what must still be added before the pipeline can run; None when nothing must."""
        if self.read is None:
            return f"pipeline {self.name!r} reads nothing: add .read(topic)"
        if not self.processes and self.sink is None:
            return f"pipeline {self.name!r} does nothing with what it reads: add .process(handler) or .write(topic)"
        if self.transforms and all(query.transforms != self.transforms for query in self.queries):
            return (
                f"what transform({name_of(self.transforms[-1])}) gives goes nowhere: "
                "add .write_table(…), .write(topic) or .for_each_batch(function) behind it"
            )
        return None

    def check(self) -> Draft:
        """Return itself; raise UsageError where two parts contradict each other."""
        self._check_orderings()
        if self.read is not None:
            if self.output_topic is not None:
                self._check_loop(self.read, self.output_topic, "write", "its outputs")
            if self.dead_letters is not None:
                self._check_loop(self.read, self.dead_letters.topic, "dead_letters", "its dead letters")
        if self.dead_letters is not None and self.dead_letters.topic == self.output_topic:
            raise UsageError(
                f"dead_letters({self.dead_letters.topic!r}): outputs are written there too; name another topic"
            )
        self._check_queries()
        return self

    def _check_queries(self) -> None:
        if self.output_topic is not None:
            check_topic(self.output_topic, "the topic of the queries")
        taken = {self.output_topic: "the handlers' outputs are", None: ""}
        if self.dead_letters is not None:
            taken[self.dead_letters.topic] = "dead letters are"
        for topic in (each.sink.topic for each in self.queries if isinstance(each.sink, TopicSink)):
            if self.read is not None:
                self._check_loop(self.read, topic, "write", "what the query writes")
            if topic in taken:
                raise UsageError(f"write({topic!r}): {taken[topic]} written there too; name another topic")
            taken[topic] = "another query's rows are"

    def _orderings(self) -> list[tuple[str, Ordering]]:
        chosen = [] if self.read is None or self.read.ordering is None else [("read", self.read.ordering)]
        return chosen + [
            (f"process {step.name!r}", step.ordering) for step in self.processes if step.ordering is not None
        ]

    def _check_orderings(self) -> None:
        chosen = self._orderings()
        for where, ordering in chosen[1:]:
            first_where, first = chosen[0]
            if ordering is not first:
                raise UsageError(
                    f"{where} has ordering={ordering.value!r}, but {first_where} has {first.value!r}: one ordering "
                    "holds through all steps; choose one, or write to a topic that a second pipeline reads"
                )
        if self.read is not None and self.read.key is not None and self.ordering is not Ordering.KEY:
            raise UsageError(
                f"read(key=…) chooses an ordering key, but ordering={self.ordering.value!r} looks at no key; drop one"
            )

    def _check_loop(self, read: Read, topic: str, step: str, what: str) -> None:
        matched = read.pattern is not None and re.match(read.pattern, topic) is not None
        if topic in read.topics or matched:
            source = f"the pattern {read.pattern!r}" if matched else "it too"
            raise UsageError(
                f"{step}({topic!r}): the pipeline reads {source} and would read {what} for ever; name another topic"
            )
