"""Fault 25: a record that cannot be decoded ends in the dead letters, or the run with a sentence that names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from contract_world import Given
from spark_world import SparkWorld, ended

from anabranch import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anabranch import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]


@dataclass
class Order:
    """What the topic is said to hold."""

    number: int


async def confirm(order: Order) -> str:
    """Be a handler that trusts the type of its value."""
    return f"confirmed {order.number}"


@pytest.fixture
def world(anabranch_broker: Broker, tmp_path: Path) -> Iterator[SparkWorld]:
    made = SparkWorld(anabranch_broker.bootstrap, tmp_path, broker=anabranch_broker)
    yield made
    made.close()


def orders_with_poison(world: SparkWorld) -> Pipeline[Any]:
    """Send orders, two of which are none; answer what reads them."""
    world.create(2)
    world.send([Given(b"a", {"number": 1}), Given(b"b", b"\xff not JSON"), Given(b"c", {"number": "two"})])
    world.send([Given(b"d", {"number": 4}, 1)])
    return Pipeline(world.group).read(world.topic, Order).process(confirm)


def test_a_record_that_is_poison_goes_to_the_dead_letters_and_the_others_go_on(world: SparkWorld) -> None:
    """Bytes that are no JSON, and JSON of another type: each letter says what was wrong, and no member dies of it."""
    pipeline = orders_with_poison(world)
    out, dead = world.create(1, topic=f"{world.topic}-out"), world.create(1, topic=f"{world.topic}-dead")
    run = pipeline.write(out).dead_letters(dead, ratio_max=1.0).start(**world.options(until="end"))
    assert ended(run) == 0
    assert {found.value for found in world.read(out)} == {b"confirmed 1", b"confirmed 4"}
    letters = {bytes(found.key or b""): dict(found.headers) for found in world.read(dead)}
    assert letters.keys() == {b"b", b"c"}
    assert b"int" in (letters[b"c"]["anabranch.message"] or b"")
    assert [each["starts"] for each in run.statistics()["members"].values()] == [1, 1]
    assert world.positions() == world.ends()


def test_without_dead_letters_a_record_that_is_poison_ends_the_run_with_its_place(world: SparkWorld) -> None:
    """Exit code 4; the sentence has topic, partition, offset and the fix; when it is mended the next run goes on."""
    pipeline = orders_with_poison(world)
    run = pipeline.start(**world.options())
    assert ended(run) == 4
    said = str(run.result.error)
    assert f"{world.topic}/0" in said
    assert "at 1" in said or "offset 1" in said
    assert ".dead_letters(" in said
    assert world.positions().get(0, 0) <= 1
    dead = world.create(1, topic=f"{world.topic}-dead")
    again = pipeline.dead_letters(dead, ratio_max=1.0).start(**world.options(until="end"))
    assert ended(again) == 0
    assert world.positions() == world.ends()
