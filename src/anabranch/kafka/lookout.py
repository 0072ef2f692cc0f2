"""See what there is to read: ids, partitions and bounds of topics, in two requests or three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from anabranch.core.errors import UsageError
from anabranch.kafka.client import LIBRARY_LOGGER, Connection, LastError, metadata, translated, translating
from anabranch.kafka.extents import TopicSeen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch.kafka.extents import Seen, Topics

REQUEST_TIMEOUT_S: Final = 3.0

_SPECS: Any = OffsetSpec  # has no types
_NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # what a broker without topic ids answers
_NO_TOPIC_IDS: Final = frozenset({"UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"})
_MISSING: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})


class Lookout:
    """Asks a cluster about topics. Used by one thread at a time; every call may raise one of our errors."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        """Prepare; nothing is sent before the first question."""
        self.connection = connection
        self.topics = topics
        self._client_made: AdminClient | None = None
        self._last_error = LastError()

    def look(self) -> Seen:
        """See everything anew: three requests. Raise UsageError if a topic that was named does not exist."""
        shapes = self.shapes(self._names())
        partitions = [(name, number) for name, (_, count) in shapes.items() for number in range(count)]
        starts = self._offsets(partitions, _SPECS.earliest())
        ends = self._offsets(partitions, _SPECS.latest())
        return {
            name: TopicSeen(topic_id, starts.get(name, {}), ends.get(name, {}))
            for name, (topic_id, _) in shapes.items()
        }

    def look_at_ends(self, seen: Seen) -> Seen:
        """See how far the partitions that are known may be read by now: one request."""
        ends = self._offsets([(name, number) for name, each in seen.items() for number in each.ends], _SPECS.latest())
        return {name: TopicSeen(each.id, each.log_starts, ends.get(name, {})) for name, each in seen.items()}

    def shapes(self, names: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Ask for id and number of partitions of topics."""
        asked = list(names)
        if not asked:
            return {}
        with translating("asking for topics"):
            answers = self._client().describe_topics(TopicCollection(asked), request_timeout=REQUEST_TIMEOUT_S)
        return {name: self._shape(name, answers[name]) for name in asked}

    def _shape(self, name: str, answer: Any) -> tuple[str, int]:
        try:
            found = answer.result()
        except KafkaException as error:
            code = error.args[0].name()
            if code in _MISSING:
                raise UsageError(f"no topic {name!r}: create it with `anabranch topics create {name}`") from error
            if code not in _NO_TOPIC_IDS:
                raise translated(error.args[0], f"asking for topic {name}") from error
            found = metadata(self._client(), self.connection, self._last_error, name).topics[name]
            return "", len(found.partitions)
        topic_id = str(found.topic_id)
        return "" if topic_id == _NO_TOPIC_ID else topic_id, len(found.partitions)

    def _names(self) -> list[str]:
        if self.topics.pattern is None:
            return list(self.topics.names)
        found = metadata(self._client(), self.connection, self._last_error).topics
        return sorted(name for name in found if self.topics.covers(name))

    def _offsets(self, partitions: Iterable[tuple[str, int]], spec: Any) -> dict[str, dict[int, int]]:
        asked = {LibraryPartition(*partition): spec for partition in partitions}
        found: dict[str, dict[int, int]] = {}
        if asked:
            with translating("asking for offsets"):
                answers = self._client().list_offsets(
                    asked, isolation_level=self._isolation(), request_timeout=REQUEST_TIMEOUT_S
                )
                for name, answer in answers.items():
                    found.setdefault(name.topic, {})[name.partition] = int(answer.result().offset)
        return {topic: dict(sorted(each.items())) for topic, each in found.items()}

    def _isolation(self) -> IsolationLevel:
        uncommitted = self.connection.settings.get("isolation.level") == "read_uncommitted"
        return IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED

    def _client(self) -> AdminClient:
        if self._client_made is None:
            with translating("setting up the client"):
                defaults = {
                    "client.id": "anabranch-source",
                    "error_cb": self._last_error,
                    "reconnect.backoff.max.ms": 1000,
                }
                self._client_made = AdminClient(self.connection.config(defaults), logger=LIBRARY_LOGGER)
        return self._client_made
