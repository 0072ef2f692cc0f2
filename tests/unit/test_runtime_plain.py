"""Statistics as plain values, targets, settings: what the runtime decides without doing anything."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from anabranch.control.policy import PlanePolicy, StepPolicy
from anabranch.core.errors import BrokerUnreachable, Fatal, Halted, InternalError, PeerError, UsageError
from anabranch.core.records import Record
from anabranch.core.run_options import RunOptions, parse_until
from anabranch.core.work import TopicPartition
from anabranch.pipeline.plan import Plan, ReadPlan, StepPlan
from anabranch.runtime.plain import plain
from anabranch.runtime.result import Result
from anabranch.runtime.settings import Given, checked
from anabranch.runtime.until import unreached


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    name: str
    key: bytes


@dataclass(frozen=True, slots=True)
class Outer:
    inner: tuple[Inner, ...]
    by_partition: dict[TopicPartition, float]
    colour: Colour
    nothing: None
    other: object


async def handle(_value: bytes) -> None: ...


def plan(**parts: Any) -> Plan:
    step = StepPlan("s", handle, True, False, 1, None, lambda task: task.record.value, None)
    return Plan("billing", ReadPlan(("t",)), (step,), PlanePolicy((StepPolicy("s"),)), **parts)


def test_whatever_the_parts_say_about_themselves_json_can_hold_it() -> None:
    """Dataclasses and named tuples by field, partitions and enums as texts, bytes so that no one is lost."""
    path = Path("x")
    outer = Outer((Inner("a", b"k\xff"),), {TopicPartition("t", 1): 0.5}, Colour.RED, None, path)
    expected = {
        "inner": [{"name": "a", "key": "k\\xff"}],
        "by_partition": {"t/1": 0.5},
        "colour": "red",
        "nothing": None,
        "other": "x",
    }
    assert plain(outer) == expected
    assert json.loads(json.dumps(plain(outer))) == expected
    assert plain(Record("t", 0, 1, None, b"v"))["value"] == "v"
    assert plain({"flags": frozenset({True})}) == {"flags": [True]}


def test_a_target_is_unreached_until_the_position_stands_at_it_or_beyond() -> None:
    """A partition of which nothing is known has not reached anything."""
    a, b, c = (TopicPartition("t", number) for number in range(3))
    assert unreached({a: 10, b: 10, c: 10}, {a: 10, b: 9}) == {b, c}
    assert unreached({a: 10}, {a: 11, b: 0}) == set()
    assert unreached({}, {}) == set()


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (UsageError("x"), 2, "refused"),
        (BrokerUnreachable("x"), 3, "broker unreachable"),
        (Halted("x"), 4, "halted"),
        (PeerError("x"), 4, "lost"),
        (Fatal("x"), 4, "failed"),
        (InternalError("x"), 1, "failed"),
    ],
)
def test_each_branch_of_errors_has_its_exit_code(error: Any, code: int, reason: str) -> None:
    """As the design lists them."""
    result = Result.of_error(error)
    assert (result.exit_code, result.reason, result.error) == (code, reason, error)


def test_what_is_not_given_follows_from_the_pipeline() -> None:
    """The state folder from the group, the member's name from group and process, bounds from the gate."""
    settings = checked(plan(), Given())
    assert settings.state_dir == Path(".anabranch") / "billing"
    assert settings.member.startswith("billing-")
    assert settings.source.records_max == plan().policy.gate.records_max
    assert settings.sink.dead_letter_topic is None
    assert settings.sink.topic is None
    assert checked(plan(sink_topic="receipts"), Given()).sink.topic == "receipts"


def test_what_is_given_about_logs_that_lost_a_position_reaches_the_source() -> None:
    """And how long a start waits for its broker."""
    usual = checked(plan(), Given()).source
    assert (usual.on_lost_to_retention, usual.on_beyond_end, usual.reach_s) == ("go on", "halt", 10.0)
    given = checked(plan(), Given(on_lost_to_retention="halt", on_beyond_end="log_end", reach_s=1)).source
    assert (given.on_lost_to_retention, given.on_beyond_end, given.reach_s) == ("halt", "log_end", 1)


def test_the_options_of_a_run_have_the_defaults_of_start() -> None:
    """One table: what `anabranch run` takes when nothing is said is what `start` takes."""
    given = Given()
    for name in ("drain_s", "grace_s", "session_timeout_s", "reach_s", "on_lost_to_retention", "on_beyond_end"):
        assert getattr(RunOptions(), name) == getattr(given, name)


def test_settings_of_the_library_become_texts() -> None:
    """As librdkafka spells them."""
    settings = checked(plan(), Given(kafka={"linger.ms": 5, "allow.auto.create.topics": True}))
    assert settings.source.extra == {"linger.ms": "5", "allow.auto.create.topics": "true"}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (Given(engine="threads"), "'async' or 'inline'"),
        (Given(unknown={"bootsrap": "x"}), "'bootsrap'.*bootstrap"),
        (Given(until="soon"), "until"),
        (Given(until=5), "until"),  # type: ignore[arg-type]  # that is the point
        (Given(until=datetime(2020, 1, 1)), "time zone"),  # noqa: DTZ001 - that is the point
        (Given(until=datetime.now(UTC) + timedelta(days=1)), "future"),
        (Given(drain_s=-1), "drain_s"),
        (Given(grace_s=400, kafka={"max.poll.interval.ms": 30_000}), "grace_s"),
        (Given(kafka={"group.id": "x"}), "group.id"),
        (Given(on_beyond_end="earliest"), "on_beyond_end.*halt or log_end or log_start"),
        (Given(on_lost_to_retention="ignore"), "on_lost_to_retention"),
        (Given(reach_s=-1), "reach_s"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_name_of_the_option(given: Given, match: str) -> None:
    """Before anything is opened."""
    with pytest.raises(UsageError, match=match):
        checked(plan(), given)


def test_a_step_that_only_spark_can_run_is_refused() -> None:
    """By its name, and with what to do."""
    with pytest.raises(UsageError, match=r"'transform'.*spark"):
        checked(plan(spark_only=("transform",)), Given())


def test_until_is_the_end_or_a_time_and_a_time_without_zone_is_utc() -> None:
    """As it is typed on a command line."""
    assert parse_until("end") == "end"
    assert parse_until("2026-07-01T12:00:00Z") == datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert parse_until("2026-07-01") == datetime(2026, 7, 1, tzinfo=UTC)
    with pytest.raises(UsageError, match="until"):
        RunOptions(until="never")
