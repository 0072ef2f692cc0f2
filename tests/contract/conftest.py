"""The contract suite's engines, fixtures, and the table of promises it prints at its end.

A test of a promise is marked `@promise("C1", "what holds")`. It runs once per engine. With ANABRANCH_TEST_BOOTSTRAP set
(`make test-kafka`) the same tests run on that Kafka instead of an embedded broker.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import contract_table
import pytest
from contract_runner import Runner
from contract_world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENGINES = ("inline", "async")
BOOTSTRAP = os.environ.get("ANABRANCH_TEST_BOOTSTRAP")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "promise(name): the promise of DESIGN section 2 that a contract test holds to")
    config.addinivalue_line("markers", "own_broker: freezes or restarts the broker, so it needs an embedded one")
    if not config.pluginmanager.is_registered(contract_table):
        config.pluginmanager.register(contract_table, "contract-table")


@pytest.fixture(scope="session")
def contract_broker() -> Iterator[Any]:
    """A broker for the session, unless a Kafka was given."""
    if BOOTSTRAP is not None:
        yield None
        return
    from anabranch import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def world(contract_broker: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A topic and a group of this test's own."""
    if BOOTSTRAP is not None and request.node.get_closest_marker("own_broker"):
        pytest.skip("freezes or restarts its broker: only with the embedded one")
    made = World(BOOTSTRAP or contract_broker.bootstrap, tmp_path, broker=contract_broker)
    yield made
    made.close()


@pytest.fixture(params=ENGINES)
def engine_runner(request: pytest.FixtureRequest, world: World) -> Iterator[Runner]:
    """Start, stop, kill and restart members on one engine after another."""
    runner = Runner(request.param, world)
    yield runner
    runner.discard()


@pytest.fixture
def async_runner(world: World) -> Iterator[Runner]:
    """Run on the async engine only: for faults that need calls running at once."""
    runner = Runner("async", world)
    yield runner
    runner.discard()
