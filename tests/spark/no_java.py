"""An environment without any Java but the one that pip installs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TOOLS = ("bash", "cat", "chmod", "dirname", "env", "grep", "ls", "ps", "rm", "sed", "sh", "tr", "uname")
"""What Spark's scripts, and Hadoop's local file system, call."""


def environment_without_java(folder: Path) -> dict[str, str]:
    """Answer an environment with these commands and nothing else; the folder is where they, and the home, are."""
    tools = folder / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found is not None:
            (tools / name).symlink_to(found)
    return {"PATH": str(tools), "HOME": str(folder)}
