"""One Spark run at a time per state folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from anabranch.core.errors import UsageError
from anabranch.spark.state_lock import hold

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys
from anabranch.spark.state_lock import hold
lock = hold(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_held_by_one_run_until_it_releases_it(tmp_path: Path) -> None:
    """Also within one process; the sentence says who has it and what to do."""
    with hold(tmp_path / "state") as lock:
        with pytest.raises(UsageError, match=rf"another Spark run \(process {os.getpid()}\) uses.*with state_dir"):
            hold(tmp_path / "state")
        hold(tmp_path / "other").release()
        lock.release()
        hold(tmp_path / "state").release()


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    """Nobody has to remove a file after a kill -9."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"process {holder.pid}"):
            hold(tmp_path)
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    hold(tmp_path).release()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """With the option that names another."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be used: .*; choose another with state_dir"):
        hold(tmp_path / "file" / "state")
