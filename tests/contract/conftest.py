"""The contract suite's engines and fixtures.

A test of a promise is marked `promise("C1")`; `contract_table.py` prints them all at the end. It runs once per engine.
With ANABRANCH_TEST_BOOTSTRAP set (`make test-kafka`) the same tests run on that Kafka, not on an embedded broker.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from contract_runner import Runner
from contract_spark import NOT_ON_SPARK
from contract_world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINES = ("inline", "async", pytest.param("spark", marks=pytest.mark.xdist_group("spark processes")))
BOOTSTRAP = os.environ.get("ANABRANCH_TEST_BOOTSTRAP")


@pytest.fixture(scope="session")
def contract_broker() -> Iterator[Any]:
    """A broker for the session, unless a Kafka was given."""
    if BOOTSTRAP is not None:
        yield None
        return
    from anabranch import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def own_kafka() -> Iterator[Any]:
    """An Apache Kafka that tests of this process may freeze and kill: the one that was given is everybody's."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "kafka"))
    from apache_kafka import ApacheKafka, KafkaMissing

    try:
        kafka = ApacheKafka()
    except KafkaMissing as missing:
        pytest.skip(f"freezes or kills its broker, and none can be started beside the one that was given: {missing}")
    with kafka:
        yield kafka


@pytest.fixture
def world(contract_broker: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A topic and a group of this test's own, on a broker of this process's own if the test is marked so."""
    broker = contract_broker
    if BOOTSTRAP is not None and request.node.get_closest_marker("own_broker"):
        broker = request.getfixturevalue("own_kafka")
    made = World(broker.bootstrap if broker else BOOTSTRAP, tmp_path, broker=broker)
    yield made
    made.close()


@pytest.fixture(params=ENGINES)
def engine_runner(request: pytest.FixtureRequest, world: World) -> Iterator[Runner]:
    """Start, stop, kill and restart members on one engine after another."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    runner = Runner(request.param, world)
    yield runner
    runner.discard()


@pytest.fixture
def async_runner(world: World) -> Iterator[Runner]:
    """Run on the async engine only: for faults that need calls running at once."""
    runner = Runner("async", world)
    yield runner
    runner.discard()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not run on Spark; `contract_spark` says why."""
    left_out = [each for each in items if _engine(each) == "spark" and _name(each) in NOT_ON_SPARK]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [each for each in items if each not in left_out]


def _engine(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("engine_runner")


def _name(item: pytest.Item) -> str:
    return str(getattr(item, "originalname", item.name))
