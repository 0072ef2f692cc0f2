"""The short, seeded form of `make storm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storm import Weather, run, say

if TYPE_CHECKING:
    from pathlib import Path


def test_members_that_come_and_go_lose_and_reorder_nothing(tmp_path: Path) -> None:
    """Fault 9. Kills and stops at random: every key is consumed in order, repeats are few and explained, each member
    works."""
    weather = Weather(seconds=4, records=6_000, members=3, keys=400, gust_s=1.0, session_timeout_s=2.0, seed=3)
    verdict = run(weather, tmp_path)
    say(verdict.line())
    assert verdict.ok, verdict.report()
