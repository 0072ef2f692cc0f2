"""Find the topics that are written to, and make those that are missing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from anabranch.core.errors import PeerError
from anabranch.kafka.client import LIBRARY_LOGGER

if TYPE_CHECKING:
    from anabranch.kafka.settings import SinkSettings

REQUEST_TIMEOUT_S: Final = 2.0
RETRY_S: Final = 0.2
LETTER_ROOM_BYTES: Final = 64 * 1024
MESSAGE_BYTES_DEFAULT: Final = 1_048_588
"""Kafka's default of `max.message.bytes`."""
_BROKER_DEFAULT: Final = -1  # KIP-464: the broker fills in how many partitions and replicas
_PERMANENT: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "POLICY_VIOLATION",
        "TOPIC_EXCEPTION",
        "INVALID_CONFIG",
        "INVALID_PARTITIONS",
        "INVALID_REPLICATION_FACTOR",
    }
)


class SinkTopics:
    """The topics of a sink. Used on its thread; `partitions` may be read from any."""

    def __init__(self, settings: SinkSettings) -> None:
        """Know nothing yet."""
        self.partitions: dict[str, int] = {}
        """How many partitions each topic has that may be written to."""
        self.created: list[str] = []
        self.problem = ""
        """Why a topic could not be found or made the last time; empty when all are well."""
        self._settings = settings
        self._client: AdminClient | None = None
        self._due: dict[str, float] = {}
        self._missing_since: dict[str, float] = {}

    def forget(self, topic: str) -> None:
        """Look again for a topic before it is written to: the broker does not know it any more."""
        self.partitions.pop(topic, None)

    def find(self, topic: str, source: str | None) -> PeerError | None:
        """Look for a topic and make it if it is missing; answer a refusal that is final.

        Whether it is there shows in `partitions`; if not, call again later. `source` is where a letter came from.
        """
        now = time.monotonic()
        if topic in self.partitions or now < self._due.get(topic, 0.0):
            return None
        self._due[topic] = now + RETRY_S
        try:
            if self._exists(topic):
                return None
            if self._settings.create_topics:
                self._create(topic, source)
                return None
        except KafkaException as error:
            self.problem = f"{topic}: {error.args[0].str()}"
            return self._judged(topic, error.args[0])
        if now - self._missing_since.setdefault(topic, now) > self._settings.refusal_s:
            return PeerError(f"no topic {topic!r} to write to: create it with `anabranch topics create {topic}`")
        return None

    def _judged(self, topic: str, error: KafkaError) -> PeerError | None:
        if error.name() not in _PERMANENT:
            return None
        return PeerError(
            f"topic {topic} cannot be written to: {error.str()}; create it with `anabranch topics create {topic}`, "
            "or allow this client to"
        )

    def _exists(self, topic: str) -> bool:
        found = self._admin().list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if found.error is not None and found.error.name() not in {"UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"}:
            raise KafkaException(found.error)
        if found.error is None and found.partitions:
            self.partitions[topic] = len(found.partitions)
            self._missing_since.pop(topic, None)
            self.problem = ""
            return True
        return False

    def _create(self, topic: str, source: str | None) -> None:
        count, config = self._settings.partitions, {}
        models = [source] if source is not None else self._settings.source_topics[:1]
        if count is None and models:
            count = len(self._admin().list_topics(models[0], timeout=REQUEST_TIMEOUT_S).topics[models[0]].partitions)
        if source is not None:
            config["max.message.bytes"] = str(self._message_bytes_max(source) + LETTER_ROOM_BYTES)
        wanted = NewTopic(topic, count or _BROKER_DEFAULT, _BROKER_DEFAULT, config=config)
        try:
            self._admin().create_topics([wanted], request_timeout=REQUEST_TIMEOUT_S)[topic].result()
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
        else:
            self.created.append(topic)
        self._due[topic] = 0.0  # `find` sees it as soon as it is there
        self._exists(topic)

    def _message_bytes_max(self, topic: str) -> int:
        resource: Any = ConfigResource(ResourceType.TOPIC, topic)
        try:
            answer: Any = self._admin().describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
            return int(answer.result()["max.message.bytes"].value)
        except (KafkaException, KeyError, TypeError, ValueError):
            return MESSAGE_BYTES_DEFAULT

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(
                self._settings.connection.config(
                    {"client.id": self._settings.client_id, "allow.auto.create.topics": False}
                ),
                logger=LIBRARY_LOGGER,
            )
        return self._client
