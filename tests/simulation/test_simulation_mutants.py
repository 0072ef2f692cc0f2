"""The simulation has teeth: a plane with one fault is found out within a few seeds."""

import pytest
from doctored_planes import DOCTORED, maker

from anabranch.control.plane import Plane
from anabranch.testing.simulation import draw, simulate

SEEDS_MAX = 120


@pytest.mark.parametrize(("doctored", "evidence"), DOCTORED.items(), ids=lambda given: getattr(given, "__name__", None))
def test_a_doctored_plane_is_found_out(doctored: type[Plane], evidence: str) -> None:
    """One of the first seeds turns red with it, for the right reason, and the report says how to see it again."""
    for seed in range(SEEDS_MAX):
        outcome = simulate(draw(seed), maker(doctored))
        broken = {finding.checker for finding in outcome.verdict.findings if finding.count}
        if evidence in broken or any(evidence in violation for violation in outcome.violations):
            assert not outcome.ok
            assert f"python -m anabranch.testing.simulation {seed}" in outcome.report()
            return
    pytest.fail(f"{doctored.__name__}: {doctored.__doc__} No seed below {SEEDS_MAX} noticed.")
