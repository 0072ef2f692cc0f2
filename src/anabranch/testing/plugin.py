"""The pytest plugin: a broker for the session, a fresh topic for each test. Installed with the package.

Light on purpose: pytest loads it in every run, also in those that do not use it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch.broker.embedded import Broker

TOPIC_PARTITIONS = 4


@pytest.fixture(scope="session")
def anabranch_broker() -> Iterator[Broker]:
    """Run an embedded broker for the test session; clients connect to `anabranch_broker.bootstrap`."""
    from anabranch import Broker

    with Broker(default_partitions=TOPIC_PARTITIONS) as broker:
        yield broker


@pytest.fixture
def anabranch_topic(anabranch_broker: Broker, request: pytest.FixtureRequest) -> str:
    """Answer the name of a new topic with four partitions, made for this test alone."""
    from anabranch.kafka.admin import Admin
    from anabranch.kafka.client import Connection

    name = f"{request.node.name[:40]}-{secrets.token_hex(4)}"
    topic = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
    Admin(Connection(anabranch_broker.bootstrap)).create([topic], TOPIC_PARTITIONS, {})
    return topic
