"""The torture of runs on Spark: its option, its broker, and what ends when a test fails.

`make torture-spark` runs this folder with `--torture=full`; started with all tests it is the short, seeded form, as in
`tests/torture`. All of it is one xdist group: the JVMs of one test are enough for two cores.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "torture"))

from spark_ordeal import Ordeal  # its folder had to be named first
from torture_form import Torture, torture_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch import Broker


@pytest.fixture
def torture(request: pytest.FixtureRequest) -> Torture:
    return torture_of(request)


@pytest.fixture
def ordeal(torture: Torture, anabranch_broker: Broker, tmp_path: Path) -> Iterator[Ordeal]:
    """A topic, a group, records with failing and stuck keys, and runs on Spark that end with the test."""
    made = Ordeal(torture, anabranch_broker.bootstrap, tmp_path)
    yield made
    made.close()
