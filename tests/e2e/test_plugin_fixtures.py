"""The pytest plugin: loaded by installing the package, one broker for the session, a fresh topic for each test."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from raw_client import RawClient, batch_of

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch import Broker

_seen: set[str] = set()


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_has_a_topic_of_its_own(anabranch_broker: Broker, anabranch_topic: str, number: int) -> None:
    """A new, empty topic with four partitions on the session's broker."""
    assert anabranch_topic not in _seen
    _seen.add(anabranch_topic)
    with RawClient(anabranch_broker.bootstrap) as client:
        assert len(client.describe_topic(anabranch_topic).partitions) == 4
        assert client.produce(anabranch_topic, batch_of([b"%d" % number])).base_offset == 0


@pytest.mark.parametrize("letter", ["a/b", "ä ö", "[x]", "𝄞" * 300])
def test_a_test_of_any_name_gets_a_topic(anabranch_topic: str, letter: str) -> None:
    """Parameters become part of a test's name; what a topic's name cannot hold is replaced."""
    assert anabranch_topic


_A_USERS_TESTS = """
def test_one(anabranch_broker, anabranch_topic):
    assert anabranch_broker.bootstrap.startswith("127.0.0.1:")
    print("BOOTSTRAP", anabranch_broker.bootstrap)

def test_two(anabranch_broker, anabranch_topic):
    print("BOOTSTRAP", anabranch_broker.bootstrap)

def test_three():
    import sys
    print("IMPORTED", "anabranch.broker" in sys.modules)
"""


def test_the_plugin_is_there_without_being_asked_for(tmp_path: Path) -> None:
    """A user's test file in a folder of its own finds the fixtures; both tests talk to the same broker."""
    (tmp_path / "test_users.py").write_text(_A_USERS_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:randomly", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    addresses = {word for line in ended.stdout.splitlines() for word in line.split() if word.startswith("127.0.0.1:")}
    assert len(addresses) == 1


def test_a_run_that_uses_no_fixture_starts_no_broker(tmp_path: Path) -> None:
    """pytest loads the plugin in every run: it must not cost those that do not use it the broker's imports."""
    (tmp_path / "test_users.py").write_text(_A_USERS_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:randomly", "-p", "no:cacheprovider", "-k", "three"]
    ended = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert "IMPORTED False" in ended.stdout, ended.stdout + ended.stderr
