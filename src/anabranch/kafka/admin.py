"""Topics: list, create, delete."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from anabranch.core.errors import UsageError
from anabranch.kafka.client import (
    LIBRARY_LOGGER,
    REACH_TIMEOUT_S,
    Connection,
    LastError,
    metadata,
    translated,
    translating,
)
from anabranch.kafka.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

REQUEST_TIMEOUT_S = 15.0
ABSENT_TIMEOUT_S = 1.0
ANSWER_S_MIN = 0.1
BROKER_DEFAULT = -1  # KIP-464: the broker fills in how many partitions and replicas


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, as the metadata shows it."""

    name: str
    partitions: int
    replicas: int

    @property
    def internal(self) -> bool:
        """Tell whether the topic is the cluster's own."""
        return self.name.startswith("__")


class Admin:
    """An administration client that has spoken with the cluster once, so that it is known to be there."""

    def __init__(
        self, connection: Connection, *, reach_s: float = REACH_TIMEOUT_S, waits: Callable[[], bool] = lambda: True
    ) -> None:
        """Connect; raise UnreachableError when nobody answers within `reach_s`.

        `waits` is asked every second or so before another attempt is made; False gives up at once.
        """
        self.connection = connection
        self.last_error = LastError()
        config = connection.config(
            {"error_cb": self.last_error, "client.id": "anabranch-cli", "reconnect.backoff.max.ms": 1000}
        )
        with translating("setting up the client", connection):
            self.client = AdminClient(config, logger=LIBRARY_LOGGER)
        self._reach(time.monotonic() + reach_s, waits)

    def topics(self) -> list[Topic]:
        """Return all topics by name."""
        found = metadata(self.client, self.connection, self.last_error).topics
        return sorted(
            (Topic(name, len(each.partitions), _replicas(each.partitions)) for name, each in found.items()),
            key=lambda topic: topic.name,
        )

    def create(self, names: Sequence[str], partitions: int | None, config: Mapping[str, str]) -> None:
        """Create topics; raise for the first that cannot be created."""
        count = BROKER_DEFAULT if partitions is None else partitions
        wanted = [NewTopic(name, count, BROKER_DEFAULT, config=dict(config)) for name in names]
        with translating("creating topics"):
            answers = self.client.create_topics(wanted, request_timeout=REQUEST_TIMEOUT_S)
        self._settle(answers, "creating topic")

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics with all their records; raise before anything is deleted if one does not exist."""
        known = {topic.name for topic in self.topics()}
        for name in names:
            if name not in known:
                raise UsageError(f"no topic {name!r}: `anabranch topics ls` shows what there is")
        with translating("deleting topics"):
            answers = self.client.delete_topics(list(names), request_timeout=REQUEST_TIMEOUT_S)
        self._settle(answers, "deleting topic")

    def _reach(self, deadline: float, waits: Callable[[], bool]) -> None:
        # Where nobody listens at all, short attempts lose nothing; one who listens may need longer to answer.
        patience_s = ABSENT_TIMEOUT_S
        while True:
            timeout_s = min(patience_s, max(ANSWER_S_MIN, deadline - time.monotonic()))
            try:
                metadata(self.client, self.connection, self.last_error, timeout_s=timeout_s)
            except UnreachableError:
                if time.monotonic() >= deadline or not waits():
                    raise
                patience_s = ABSENT_TIMEOUT_S if self.last_error.all_down else REACH_TIMEOUT_S
            else:
                return

    def _settle(self, answers: Mapping[str, Future[None]], doing: str) -> None:
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                raise translated(error.args[0], f"{doing} {name}") from error


def _replicas(partitions: Mapping[int, object]) -> int:
    counts = [len(getattr(each, "replicas", ())) for each in partitions.values()]
    return max(counts, default=0)
