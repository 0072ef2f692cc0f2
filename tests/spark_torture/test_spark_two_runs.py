"""Two runs of one group on Spark, in processes of their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from contract_world import eventually
from spark_ordeal import processes_of

if TYPE_CHECKING:
    from spark_ordeal import Ordeal
    from torture_form import Torture

pytestmark = pytest.mark.xdist_group("spark processes")

REFUSED, HALTED = 2, 4
RECORDS = 4000
DONE_S_MAX = 120.0


def test_the_older_of_two_runs_is_fenced_and_nothing_is_lost(torture: Torture, ordeal: Ordeal) -> None:
    """From the same folder the second run is refused; from another one it takes over, and the first one says so.

    What would go wrong: two runs take the members' places from each other for ever, or both work on the same keys.
    """
    if not torture.full:
        pytest.skip("in one process in tests/spark, in processes of their own in make torture-spark")
    ordeal.send(RECORDS, sleep_s=0.2)  # more than the first can do before the second is there
    older = ordeal.start("older")
    eventually(lambda: older.statistics().get("settled", 0) > 100, "the first run works", 60)
    fenced = processes_of(older, ordeal.world.group)
    began = time.monotonic()
    second = ordeal.start("second", wait=False)
    assert second.wait() == REFUSED, second.said()
    assert f"another Spark run (process {older.pid})" in second.said()
    torture.say(f"the second run from the same folder was refused after {time.monotonic() - began:.1f} s")
    newer = ordeal.start("newer", state_dir=str(ordeal.folder / "other"))
    code = older.wait(60)
    assert code == HALTED, older.said()
    assert f"another Spark run uses group {ordeal.world.group}" in older.said()
    sentence = next(line for line in older.said().splitlines() if "another Spark run" in line)
    torture.say(f"the older run ended with exit code {code}: {sentence.strip()}")
    ordeal.release.touch()
    eventually(lambda: ordeal.world.positions() == ordeal.world.ends(), "the newer one did the rest", DONE_S_MAX)
    newer.stop()
    assert newer.wait() == 0, newer.said()
    verdict = ordeal.judged(weighed=False, frozen=set(fenced))
    torture.say(f"counted apart, of calls that the older run had begun when it was fenced: {verdict.late}")
