"""Tests that need Apache Kafka: run by `make test-kafka`, skipped with a sentence otherwise."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from contract_runner import Runner
from contract_world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A topic and a group on Apache Kafka."""
    bootstrap = os.environ.get("ANABRANCH_TEST_BOOTSTRAP")
    if bootstrap is None:
        pytest.skip("needs Apache Kafka: make test-kafka")
    made = World(bootstrap, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["inline", "async"])
def engine_runner(request: pytest.FixtureRequest, world: World) -> Iterator[Runner]:
    """Start and stop members on one engine after another."""
    runner = Runner(request.param, world)
    yield runner
    runner.discard()
