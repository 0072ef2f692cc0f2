"""The torture suite's option and seed.

`make torture-broker` runs this folder with `--torture=full`. Started with all tests, pytest reads this file too late
for options on the command line: there it is the short, seeded form, and ANABRANCH_TORTURE=full asks for the other.
"""

import os
import random

import pytest
from torture_form import Torture

SEED_SHORT = 1
"""`make test` does the same each time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    sentence = "how long the torture of the broker takes: seconds, or minutes with progress lines"
    parser.addoption("--torture", choices=("short", "full"), default=None, help=sentence)


@pytest.fixture
def torture(request: pytest.FixtureRequest) -> Torture:
    form = request.config.getoption("--torture", None) or os.environ.get("ANABRANCH_TORTURE", "short")
    full = form == "full"
    given = os.environ.get("ANABRANCH_TORTURE_SEED")
    seed = int(given) if given else random.SystemRandom().randrange(10**6) if full else SEED_SHORT
    made = Torture(request.node.name, full=full, seed=seed)
    first_line = request.function.__doc__.strip().splitlines()[0]
    made.say(f"\n{request.node.name} (ANABRANCH_TORTURE_SEED={seed})\n  {first_line}")
    return made
