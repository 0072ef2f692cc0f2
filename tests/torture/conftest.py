"""The torture suite's option and seed.

`make torture-broker` runs this folder with `--torture=full`. Started with all tests, pytest reads this file too late
for options on the command line: there it is the short, seeded form, and ANABRANCH_TORTURE=full asks for the other.
"""

import pytest
from torture_form import Torture, torture_of


def pytest_addoption(parser: pytest.Parser) -> None:
    sentence = "how long the torture of the broker takes: seconds, or minutes with progress lines"
    parser.addoption("--torture", choices=("short", "full"), default=None, help=sentence)


@pytest.fixture
def torture(request: pytest.FixtureRequest) -> Torture:
    return torture_of(request)
