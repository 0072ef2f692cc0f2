"""A cluster that has no group coordinator yet, as every new one: it is waited for, and nobody crashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from apache_kafka import ApacheKafka
from contract_runner import Runner
from contract_world import Given, World


@pytest.fixture
def new_kafka() -> ApacheKafka:
    """A cluster in which nobody has asked for a coordinator."""
    if "ANABRANCH_TEST_BOOTSTRAP" not in os.environ:
        pytest.skip("needs Apache Kafka: make test-kafka")
    with ApacheKafka() as kafka:
        yield kafka


def test_the_first_question_about_a_group_is_answered(new_kafka: ApacheKafka, tmp_path: object) -> None:
    """The library's own call for a group's commits ended the process with a segmentation fault when the coordinator was
    still loading (confluentinc/librdkafka#5040): a command, and a run to the end, on a cluster that is seconds old.
    """
    world = World(new_kafka.bootstrap, tmp_path)
    world.create()
    world.send([Given(b"a") for _ in range(10)])
    command = [sys.executable, "-m", "anabranch", "lag", "nobody", "--bootstrap", new_kafka.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "no group 'nobody'" in done.stderr
    runner = Runner("async", world)
    member = runner.start_process(until="end")
    assert member.wait() == 0, member.said()
    assert world.positions() == {0: 10}
    world.close()
