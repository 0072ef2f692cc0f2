"""The builder: each step is a new pipeline, and what cannot run is refused when it is said."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from anabranch import Breaker, Commit, Gate, Pipeline, Record, Retry, UsageError
from anabranch.core.policies import Ordering

ORDERS = Pipeline("billing").read("orders")


async def handle(value: Any) -> None:
    return None


@asynccontextmanager
async def clients() -> AsyncIterator[str]:
    yield "open"


def test_a_step_leaves_the_pipeline_before_it_as_it_was() -> None:
    """A common beginning can be shared by two pipelines."""
    first = ORDERS.process(handle, name="one")
    second = ORDERS.process(handle, name="two")
    assert [step.name for step in first.plan().steps] == ["one"]
    assert [step.name for step in second.plan().steps] == ["two"]
    with pytest.raises(UsageError):
        ORDERS.plan()


def test_the_plan_says_what_the_builder_was_told() -> None:
    """Every choice arrives in the plan and in the policy of the plane."""
    retry, breaker = Retry(attempts=2), Breaker(enabled=False)
    plan = (
        Pipeline("billing", commit=Commit(count=5), gate=Gate(records_max=9))
        .read(["orders", "refunds"], start="latest", ordering="partition", null_key="ordered")
        .process(handle, concurrency=4, timeout_s=2, retry=retry, breaker=breaker)
        .write("receipts")
        .dead_letters("billing.dead", ratio_max=0.1, window=10, run_max=3)
        .lifespan(clients)
        .plan()
    )
    assert (plan.name, plan.read.topics, plan.read.pattern) == ("billing", ("orders", "refunds"), None)
    assert (plan.read.start, plan.read.ordering_key, plan.sink_topic) == ("latest", None, "receipts")
    assert plan.lifespan is clients
    (step,) = plan.steps
    assert (step.name, step.concurrency, step.timeout_s, step.is_async) == ("handle", 4, 2.0, True)
    policy = plan.policy
    assert (policy.steps[0].name, policy.steps[0].concurrency) == ("handle", 4)
    assert (policy.steps[0].retry, policy.steps[0].breaker) == (retry, breaker)
    assert (policy.ordering, policy.null_key_ordered) == (Ordering.PARTITION, True)
    assert (policy.commit.count, policy.gate.records_max) == (5, 9)
    assert policy.dead_letters is not None
    assert (policy.dead_letters.topic, policy.dead_letters.run_max) == ("billing.dead", 3)


def test_a_pattern_begins_with_a_caret() -> None:
    """Topics may be told by a regular expression instead of names."""
    plan = Pipeline("billing").read("^orders[.].*").process(handle).plan()
    assert (plan.read.topics, plan.read.pattern) == ((), "^orders[.].*")


def test_a_pipeline_without_process_has_one_step_that_takes_no_thread() -> None:
    """Read, map and write need no handler."""
    (step,) = ORDERS.map(bytes.upper).write("loud").plan().steps
    assert (step.name, step.is_async, step.wants_context) == ("identity", True, False)


def test_steps_are_named_after_their_handlers_and_each_has_a_name_of_its_own() -> None:
    """Names go into histories, headers and request ids, so they are always there and never the same."""
    plan = ORDERS.process(handle).process(handle).process(lambda value: value).process(lambda value: value).plan()
    assert [step.name for step in plan.steps] == ["handle", "handle-2", "process", "process-2"]


@pytest.mark.parametrize(
    "start", ["committed", "earliest", "latest", datetime(2031, 5, 4, tzinfo=UTC), {("orders", 0): 42}]
)
def test_every_start_arrives_in_the_plan(start: Any) -> None:
    """Words, a time with its zone, and offsets by partition."""
    assert Pipeline("billing").read("orders", start=start).process(handle).plan().read.start == start


def test_an_ordering_key_that_fails_leaves_the_record_to_its_first_step() -> None:
    """The consumer asks for keys and has no way to let a record die: it gets the record's own key instead."""

    def by_customer(record: Record) -> Any:
        assert record.value is not None
        return {b"text": "élan", b"bytes": b"x", b"none": None, b"number": 7}[record.value]

    plan = Pipeline("billing").read("orders", key=by_customer).process(handle).plan()
    key = plan.read.ordering_key
    assert key is not None
    values = (b"text", b"bytes", b"none", b"number", b"unknown")
    records = [Record("orders", 0, offset, b"own", value) for offset, value in enumerate(values)]
    assert [key(record) for record in records] == ["élan".encode(), b"x", None, b"own", b"own"]


def test_the_repr_tells_the_flow() -> None:
    """A pipeline in a log line or a debugger can be read."""
    pipeline = ORDERS.filter(len).process(handle).write("receipts").dead_letters("dead")
    assert repr(pipeline) == (
        "<Pipeline 'billing': read orders as bytes → filter len → process handle → write receipts; dead letters dead>"
    )
    assert repr(Pipeline("billing")) == "<Pipeline 'billing': reads nothing yet>"
    assert pipeline.name == "billing"


async def yields() -> AsyncIterator[int]:
    yield 1


REFUSED: list[tuple[str, Callable[[], object], str]] = [
    ("no read", lambda: Pipeline("billing").plan(), r"add \.read\(topic\)"),
    ("nothing done", ORDERS.plan, r"add \.process\(handler\) or \.write\(topic\)"),
    ("two reads", lambda: ORDERS.read("refunds"), r"one \.read\(\[…\]\)"),
    ("process first", lambda: Pipeline("billing").process(handle), r"begin with \.read\(topic\)"),
    ("write first", lambda: Pipeline("billing").write("receipts"), r"begin with \.read\(topic\)"),
    ("two writes", lambda: ORDERS.write("a").write("b"), r"return Out\(value, topic=…\)"),
    ("map after write", lambda: ORDERS.write("a").map(len), r"put \.map\(…\) before it"),
    ("process after write", lambda: ORDERS.write("a").process(handle), r"put \.process\(…\) before it"),
    ("empty name", lambda: Pipeline(""), "a name is made of"),
    ("name with a slash", lambda: Pipeline("a/b"), "a name is made of"),
    ("long name", lambda: Pipeline("a" * 250), "at most 249"),
    ("name not a text", lambda: Pipeline(7), "a name is made of"),
    ("reserved name", lambda: Pipeline("__consumer_offsets"), "reserved"),
    ("reserved step", lambda: ORDERS.process(handle, name="anabranch.x"), "reserved"),
    ("bad topic", lambda: Pipeline("billing").read("or ders"), "a name is made of"),
    ("dots", lambda: Pipeline("billing").read(".."), "a name is made of"),
    ("bad sink", lambda: ORDERS.write("re/ceipts"), "a name is made of"),
    ("broker's own topic", lambda: ORDERS.write("__transaction_state"), "kept by the broker"),
    ("no topics", lambda: Pipeline("billing").read([]), "name at least one"),
    ("topics not texts", lambda: Pipeline("billing").read(7), "a list of topics"),
    ("a topic twice", lambda: Pipeline("billing").read(["a", "a"]), "name each once"),
    ("pattern and name", lambda: Pipeline("billing").read(["^a", "b"]), "either names or one pattern"),
    ("bad pattern", lambda: Pipeline("billing").read("^("), "not a regular expression"),
    ("type None", lambda: Pipeline("billing").read("orders", None), "leave it out for bytes"),
    ("two steps of one name", lambda: ORDERS.process(handle, name="a").process(handle, name="a"), "another step has"),
    ("no concurrency", lambda: ORDERS.process(handle, concurrency=0), "at least 1"),
    ("half a call", lambda: ORDERS.process(handle, concurrency=1.5), "at least 1"),
    ("no time", lambda: ORDERS.process(handle, timeout_s=0), "above 0"),
    ("time not a number", lambda: ORDERS.process(handle, timeout_s="3"), "above 0"),
    ("retry a number", lambda: ORDERS.process(handle, retry=3), r"give Retry\(…\)"),
    ("unknown ordering", lambda: ORDERS.process(handle, ordering="kye"), "'key' or"),
    ("unknown null_key", lambda: Pipeline("b").read("o", null_key="no"), "'unordered'"),
    (
        "two orderings",
        lambda: ORDERS.process(handle, ordering="key").process(handle, ordering="none"),
        "process 'handle-2' has ordering='none', but process 'handle' has 'key': .* choose one",
    ),
    (
        "ordering against read",
        lambda: Pipeline("billing").read("orders", ordering="partition").process(handle, ordering="key"),
        "but read has 'partition'",
    ),
    (
        "key without order by key",
        lambda: Pipeline("billing").read("orders", ordering="none", key=lambda record: record.key),
        "drop one",
    ),
    ("not callable", lambda: ORDERS.process("handle"), "give a function"),
    ("filter not callable", lambda: ORDERS.filter(None), "give a function"),
    ("letters to the source", lambda: ORDERS.dead_letters("orders"), "name another topic"),
    ("letters before the read", lambda: Pipeline("b").dead_letters("orders").read("orders"), "name another topic"),
    ("sink is the source", lambda: ORDERS.write("orders"), "name another topic"),
    ("pattern matches sink", lambda: Pipeline("b").read("^or.*").write("origin"), "reads the pattern"),
    ("letters are the sink", lambda: ORDERS.write("a").dead_letters("a"), "name another topic"),
    ("letters twice", lambda: ORDERS.dead_letters("a").dead_letters("b"), "name one topic"),
    ("park", lambda: ORDERS.dead_letters("a", on_dead="park"), "not yet available"),
    ("letters ratio", lambda: ORDERS.dead_letters("a", ratio_max=2), "at most 1"),
    ("lifespan twice", lambda: ORDERS.lifespan(clients).lifespan(clients), "one already"),
    ("lifespan called", lambda: ORDERS.lifespan(clients()), "without calling it"),
    ("bare lifespan", lambda: ORDERS.lifespan(yields), "asynccontextmanager"),
    ("naive time", lambda: Pipeline("b").read("o", start=datetime(2031, 5, 4)), "time zone"),  # noqa: DTZ001  # meant
    ("unknown start", lambda: Pipeline("b").read("o", start="begin"), "'earliest'"),
    ("start elsewhere", lambda: Pipeline("b").read("o", start={("x", 0): 1}), "read are o"),
    ("start at no place", lambda: Pipeline("b").read("o", start={"o": 1}), "a place is"),
    ("start below zero", lambda: Pipeline("b").read("o", start={("o", 0): -1}), "from 0 on"),
    ("decoded twice", lambda: Pipeline("b").read("o", str).decode(dict), "drop one of the two"),
    ("decoded twice later", lambda: Pipeline("b").read("o").decode(str).filter(len).decode(dict), "decoded to str"),
    ("commit a number", lambda: Pipeline("b", commit=5), r"give Commit\(…\)"),
]


@pytest.mark.parametrize(("build", "fix"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_run_is_refused_with_a_sentence_that_names_the_fix(build: Callable[[], object], fix: str) -> None:
    """The refusal comes from the step that is wrong, before anything is opened."""
    with pytest.raises(UsageError, match=fix):
        build()


def test_a_coroutine_instead_of_its_function_is_refused_and_closed() -> None:
    """A handler that was called by mistake leaves no warning about a coroutine that was never awaited."""
    called = handle(b"")
    with pytest.raises(UsageError, match="without calling it"):
        ORDERS.process(called)
    with pytest.raises(RuntimeError, match="cannot reuse"):
        asyncio.run(called)


@pytest.mark.parametrize("step", ["flat_map", "batch", "unbatch", "reduce", "dedup"])
def test_a_step_of_a_later_version_is_not_there(step: str) -> None:
    """No stub pretends."""
    with pytest.raises(AttributeError):
        getattr(ORDERS, step)
