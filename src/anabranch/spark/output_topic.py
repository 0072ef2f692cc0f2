"""Make sure that the topic exists which queries and streams read, before the first output has gone there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from anabranch.core.errors import BrokerUnreachable
from anabranch.kafka.settings import SinkSettings
from anabranch.kafka.topics import RETRY_S, SinkTopics

if TYPE_CHECKING:
    from collections.abc import Mapping

REACH_S: Final = 10.0
"""How long to wait for a broker that does not answer, as a run does."""


def make_output_topic(topic: str, bootstrap: str, kafka: Mapping[str, str], like: tuple[str, ...]) -> None:
    """Make a topic if it is missing, with as many partitions as the first of `like` has. Blocks; raises PeerError."""
    topics = SinkTopics(SinkSettings(bootstrap, kafka, client_id="anabranch-queries", source_topics=like))
    until = time.monotonic() + REACH_S
    while topic not in topics.partitions:
        refusal = topics.find(topic, None)
        if refusal is not None:
            raise refusal
        if topic in topics.partitions:
            return
        if time.monotonic() > until:
            raise BrokerUnreachable(
                f"topic {topic} could not be found or made at {bootstrap} ({topics.problem or 'no answer'}): "
                "start a broker with `anabranch broker`, or name another with bootstrap"
            )
        time.sleep(RETRY_S)
