"""A pipeline in words."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import UsageError
from anabranch.core.policies import Ordering
from anabranch.pipeline.compile import IDENTITY
from anabranch.pipeline.decoding import spell
from anabranch.pipeline.draft import Decoding, Filter, Process
from anabranch.pipeline.output_type import output_type
from anabranch.pipeline.queries import EXACT_FORMATS, BatchSink, TableSink, TopicSink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch.core.policies import Breaker, Commit, DeadLetters, Gate, Retry
    from anabranch.pipeline.draft import Draft, Read, Step
    from anabranch.pipeline.queries import QueryPlan

_WIDTH = 12  # of the words on the left: "dead letters"


def explain(draft: Draft) -> str:
    """Return the whole plan as lines of text; what is missing is said at the end."""
    lines = [f"pipeline {draft.name} (consumer group {draft.name})"]
    for word, sentences in _parts(draft):
        first, *others = sentences
        lines.append(f"  {word:<{_WIDTH}} {first}")
        lines.extend(f"  {'':<{_WIDTH}} {other}" for other in others)
    missing = draft.missing()
    return "\n".join(lines if missing is None else [*lines, f"cannot run yet: {missing}"])


def describe(draft: Draft) -> str:
    """Return the plan in one line, for `repr`."""
    if draft.read is None:
        return "reads nothing yet"
    flow = [f"read {_sources(draft.read)} as {draft.read.decoding.label}"]
    flow += [f"{_word(step)} {_label(step)}" for step in draft.steps]
    flow += [] if draft.output_topic is None else [f"write {draft.output_topic}"]
    dead = "" if draft.dead_letters is None else f"; dead letters {draft.dead_letters.topic}"
    queries = "".join(f"; query {query.name}: {query.label}" for query in draft.queries)
    return " → ".join(flow) + queries + dead


def _parts(draft: Draft) -> Iterator[tuple[str, list[str]]]:
    if draft.lifespan is not None:
        yield "lifespan", [f"{getattr(draft.lifespan, '__name__', 'given')}, once per process, as ctx.resources"]
    if draft.read is not None:
        yield "read", _read(draft, draft.read)
    steps = draft.steps if draft.processes or draft.sink is None else (*draft.steps, IDENTITY)
    for step in steps:
        yield _word(step), _step(step)
    yield "write", [_write(draft)]
    if draft.queries:
        yield "rows", [_rows(draft)]
    for query in draft.queries:
        yield "query", [f"{query.name}: {query.label}, every {query.every_s:g} s", *_delivery(query)]
    yield "dead letters", [_dead(draft.dead_letters)]
    yield "commit", [_commit(draft.commit)]
    yield "bound", [_bound(draft.gate)]
    yield "delivery", ["at least once: a crash repeats calls; ctx.request_id is the same each time"]


def _read(draft: Draft, read: Read) -> list[str]:
    return [
        f"{_sources(read)}, from {_start(read)}",
        _decoded(read.decoding),
        _order(draft, read),
    ]


def _decoded(decoding: Decoding) -> str:
    if decoding.is_bytes:
        return f"as {decoding.label}, undecoded"
    how = decoding.label if decoding.label.startswith("by ") else f"to {decoding.label}"
    return f"decoded {how}; what cannot be is poison"


def _sources(read: Read) -> str:
    return f"topics that match {read.pattern}" if read.pattern is not None else ", ".join(read.topics)


def _start(read: Read) -> str:
    start = read.start
    if start == "committed":
        return "the committed position, else the earliest record"
    if isinstance(start, datetime):
        return f"the committed position, else the first record since {start.isoformat()}"
    if isinstance(start, dict):
        places = ", ".join(f"{topic}/{partition}@{offset}" for (topic, partition), offset in sorted(start.items()))
        return f"the committed position, else {places}"
    return f"the committed position, else the {start} record"


def _order(draft: Draft, read: Read) -> str:
    if draft.ordering is Ordering.NONE:
        return "order: none; all records run side by side"
    if draft.ordering is Ordering.PARTITION:
        return "order: one record at a time per partition"
    nulls = "those without a key keep theirs too" if read.null_key_ordered else "those without a key in none"
    if read.key is None:
        return f"order: one record at a time per record key; {nulls}"
    name = getattr(read.key, "__name__", "the function")
    return (
        f"order: one record at a time per key given by {name}, within a partition only: "
        f"records of one such key in two partitions keep no order; {nulls}"
    )


def _word(step: Step) -> str:
    return "decode" if isinstance(step, Decoding) else type(step).__name__.lower()


def _label(step: Step) -> str:
    return step.name if isinstance(step, Process) else step.label


def _step(step: Step) -> list[str]:
    if isinstance(step, Decoding):
        return [_decoded(step)]
    if not isinstance(step, Process):
        return [f"{step.label}; what does not pass is settled" if isinstance(step, Filter) else step.label]
    handler = step.handler
    kind = "async" if handler.is_async else "plain, in a thread"
    timeout = "no time-out" if step.timeout_s is None else f"time-out {step.timeout_s:g} s"
    title = handler.label if handler.label.startswith(step.name + "(") else f"{step.name}: {handler.label}"
    return [
        f"{title}, {kind}; {step.concurrency:,} calls at once in one process, {timeout}",
        _retry(step.retry),
        _breaker(step.breaker),
    ]


def _retry(retry: Retry) -> str:
    if retry.attempts == 1:
        return "retry: none"
    attempts = "for ever" if retry.attempts is None else f"{retry.attempts} attempts"
    age = "" if retry.age_s_max is None else f", given up after {retry.age_s_max:g} s"
    return (
        f"retry: {attempts}, after {retry.initial_s:g} s, times {retry.factor:g} up to {retry.max_s:g} s "
        f"(± {retry.jitter:.0%}){age}; only its key waits"
    )


def _breaker(breaker: Breaker) -> str:
    if not breaker.enabled:
        return "breaker: off"
    return (
        f"breaker: opens when {breaker.ratio:.0%} of at least {breaker.calls_min} calls "
        f"on at least {breaker.keys_min} keys fail within {breaker.window_s:g} s; probes after {breaker.probe_s:g} s"
    )


def _write(draft: Draft) -> str:
    topic = draft.output_topic
    if topic is None:
        return "nothing: what handlers return is dropped, but for Out(…, topic=…)"
    if draft.sink is None:
        return f"{topic}, which the queries read; made when it is missing"
    return f"{topic}, under the record's key and with its headers, unless Out says otherwise"


def _rows(draft: Draft) -> str:
    origin = "where each comes from, and what did not fit"
    try:
        kind = output_type(draft)
    except UsageError as error:
        return f"cannot be told: {error}"
    if kind is Any:
        return f"value, undecoded, as no return type or schema says what it is; {origin}"
    return f"the columns of {kind if isinstance(kind, str) else spell(kind)}; {origin}"


def _delivery(query: QueryPlan) -> list[str]:
    match query.sink:
        case TableSink(format=table_format) if table_format in EXACT_FORMATS:
            return ["each row once: after a crash the last batch is put in its own place again"]
        case TableSink():
            return ["at least once: after a crash the last batch may be there twice, unless the format tells"]
        case TopicSink():
            return ["at least once: after a crash the rows of the last batch are written again"]
        case BatchSink():
            return ["at least once: after a crash the last batch comes again, under the same batch_id"]


def _dead(letters: DeadLetters | None) -> str:
    if letters is None:
        return "none: a record that cannot be handled halts the pipeline"
    return (
        f"{letters.topic}; halts when more than {letters.ratio_max:.0%} of the last {letters.window:,} records die, "
        f"or {letters.run_max:,} in a row"
    )


def _commit(commit: Commit) -> str:
    return (
        f"every {commit.interval_s:g} s or {commit.count:,} records, at most every {commit.min_interval_s:g} s; "
        "only what is settled"
    )


def _bound(gate: Gate) -> str:
    return (
        f"{gate.records_max:,} records and {_size(gate.bytes_max)} in one process; "
        f"intake stops at {gate.close_at:.0%} and goes on at {gate.open_at:.0%}"
    )


def _size(size: int) -> str:
    for unit, name in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} bytes"
