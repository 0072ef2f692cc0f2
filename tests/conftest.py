"""What all tests share: a fixed hypothesis profile, so that a red run is red again, the table of promises, and one
local Spark session for all tests of a process that need one.

Tests on Spark are in two groups, so that two workers share them: `xdist_group("spark")` has those that use the fixture
`spark`, and with it one session; `"spark processes"` those that start processes with sessions of their own, and the
contract, which does both. Without a group each worker would start a JVM for whatever test comes to it. A session has
eight slots; runs take it as they take any session that a user has made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SLOTS = 8

sys.path.insert(0, str(Path(__file__).resolve().parent / "contract"))
pytest_plugins = ["contract_table"]  # here, because with `-n` nobody but the workers sees the suite's own conftest

settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    sentence = "how long the torture suites take: seconds, or minutes with progress lines"
    parser.addoption("--torture", choices=("short", "full"), default=None, help=sentence)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session, made as runs make theirs."""
    from anabranch.spark.session import make_session

    session = make_session("tests", f"local[{SLOTS},1000]", {}, tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
