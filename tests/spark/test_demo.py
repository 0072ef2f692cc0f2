"""The demo, as `make demo` runs it, with fewer records."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from no_java import environment_without_java

pytestmark = pytest.mark.xdist_group("spark processes")
DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
DEADLINE_S = 600.0  # only a hang reaches it


def test_the_demo_ends_with_a_verdict_and_needs_nothing_but_python(tmp_path: Path) -> None:
    """Four steps on Spark with failures, a stuck session and poison: replies, dead letters and the table are all there,
    the verdict is the last line, and nothing but the report is printed. No Java is installed but the one from pip.
    """
    done = subprocess.run(
        [sys.executable, str(DEMO), "--records", "2000", "--away-s", "3", "--keep", str(tmp_path / "kept")],
        cwd=tmp_path,
        env=environment_without_java(tmp_path),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"verdict: ok records=2000 lost=0 reordered=0 duplicates=\d+ dead=3", lines[-1])
    counted = {line.split()[1]: re.findall(r"[\d,]+", line) for line in lines if line.startswith("│")}
    assert counted["replies"] == ["1,997"] * 3
    assert counted["dead"] == ["3", "3"]
    assert counted["lost"] == ["0"] * 3
    kinds = [int(counted[kind][0]) for kind in ("add", "divide", "greet", "shout", "talk")]
    assert sum(kinds) == 1_997, "SQL has counted every row"
    (settled,) = [line for line in lines if line.startswith("chat: done after ")]
    assert "2,000 records settled (1,997 handled, 0 filtered, 3 dead)" in settled
    retries = re.search(r"(\d+) retries", settled)
    assert retries is not None
    assert int(retries[1]) > 200, "failures were met, and passed"
    assert list((tmp_path / "kept" / "replies").glob("*.parquet"))


def test_the_demo_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    """Before anything is started."""
    for options, says in ((["--records", "1"], "at least 10"), (["--keep", str(tmp_path)], "name a new folder")):
        done = subprocess.run([sys.executable, str(DEMO), *options], capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 2
        assert says in done.stderr
