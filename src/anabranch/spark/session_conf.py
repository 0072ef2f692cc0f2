"""The configuration of a session that we make: ours below, the user's above."""

from __future__ import annotations

import site
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anabranch
from anabranch.core.errors import UsageError
from anabranch.spark.masters import cores, describe_master, failures_max

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERYWHERE: Final = {
    "spark.ui.showConsoleProgress": "false",  # it draws over the status line
}
ON_THIS_MACHINE: Final = {
    "spark.driver.host": "127.0.0.1",  # nobody else has to reach it, and the host's name need not resolve
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",  # it would listen beyond loopback
    # offset and commit logs of queries: 16 instead of 67 ms a batch on a local disk
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
REFUSED: Final = {
    "spark.master": "use the option master",
    "spark.app.name": "it is the pipeline's name",
    "spark.speculation": "it would start members twice",
}


def checked_conf(given: Mapping[str, object]) -> dict[str, str]:
    """Return the user's settings as texts; raise UsageError for what cannot be one."""
    conf = {}
    for name, value in given.items():
        if not isinstance(name, str) or not name.startswith("spark."):
            raise UsageError(f"conf: given {name!r}, allowed are Spark's own names, as in spark.driver.memory=2g")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if name in REFUSED and (name, text) != ("spark.speculation", "false"):
            raise UsageError(f"conf: {name} cannot be set: {REFUSED[name]}")
        conf[name] = text
    return conf


def session_conf(app: str, master: str, given: Mapping[str, str], queries: int = 0) -> dict[str, str]:
    """Return all settings of a session that we make."""
    conf = {"spark.master": master, "spark.app.name": app, **EVERYWHERE}
    conf["spark.task.maxFailures"] = str(failures_max(queries))  # a local master's name has its own
    if describe_master(master).is_on_this_machine:
        conf |= ON_THIS_MACHINE
        conf["spark.sql.shuffle.partitions"] = str(cores())  # 200, Spark's default, is for clusters
        if path := anabranch_path():
            conf["spark.executorEnv.PYTHONPATH"] = path
    return {**conf, **given}


def anabranch_path() -> str:
    """Return the folder of this package if it is not installed: then members on this machine need a PYTHONPATH.

    The rest of the driver's path travels with the shipment, which can keep its order: what is on the PYTHONPATH stands
    before the standard library.
    """
    folder = str(Path(anabranch.__file__).resolve().parents[1])
    is_installed = folder in {*site.getsitepackages(), site.getusersitepackages()}
    return folder if not is_installed and folder in sys.path else ""
