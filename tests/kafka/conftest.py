"""Tests that need Apache Kafka: run by `make test-kafka`, skipped with a sentence otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "contract"))

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract_runner import Runner


@pytest.fixture(params=["inline", "async"])
def kafka_runner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runner]:
    """A world on Apache Kafka, and an engine."""
    from contract_runner import Runner
    from contract_world import World

    bootstrap = os.environ.get("ANABRANCH_TEST_BOOTSTRAP")
    if bootstrap is None:
        pytest.skip("needs Apache Kafka: make test-kafka")
    world = World(bootstrap, tmp_path)
    runner = Runner(request.param, world)
    yield runner
    runner.discard()
    world.close()
