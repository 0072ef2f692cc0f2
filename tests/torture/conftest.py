"""What the torture of the broker is told: `make torture-broker` runs this folder with `--torture=full`; started with
all tests it is the short, seeded form.
"""

import pytest
from torture_form import Torture, torture_of


@pytest.fixture
def torture(request: pytest.FixtureRequest) -> Torture:
    return torture_of(request)
