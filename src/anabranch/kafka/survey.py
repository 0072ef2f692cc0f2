"""Ask a cluster all that is needed to decide where partitions begin, in a handful of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from anabranch.control.carryover import topic_id_of
from anabranch.core.work import TopicPartition
from anabranch.kafka.client import LIBRARY_LOGGER, Connection
from anabranch.kafka.offsets import Found, Note, Rule, read_note

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

REQUEST_TIMEOUT_S: Final = 5.0

_SPECS: Any = OffsetSpec  # has no types
_NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # what a broker without topic ids answers


class Survey:
    """Questions to the cluster. Every method may raise the library's KafkaException: ask again later."""

    def __init__(self, consumer: Consumer, connection: Connection) -> None:
        """Ask through this consumer, and through an administration client that is made when first needed."""
        self._consumer = consumer
        self._connection = connection
        self._admin: AdminClient | None = None

    def ask(self, partitions: Sequence[TopicPartition], rule: Rule) -> dict[TopicPartition, Found]:
        """Find out about partitions that were just assigned."""
        topics = sorted({partition.topic for partition in partitions})
        shapes = self.shapes(topics)
        bounds = self.bounds(partitions)
        siblings = set(partitions)
        if rule.kind == "latest":
            siblings.update(TopicPartition(topic, n) for topic in topics for n in range(shapes[topic][1]))
        committed = self._committed(siblings)
        times = self._times(partitions, rule.time_ms) if rule.kind == "time" else {}
        return {
            partition: self._found(partition, shapes[partition.topic], bounds[partition], committed, times)
            for partition in partitions
        }

    def look(self, partition: TopicPartition) -> Found:
        """Find out about a partition that is being read: its topic's id and the bounds of its log."""
        topic_id, partitions = self.shapes([partition.topic])[partition.topic]
        return Found(topic_id, *self.bounds([partition])[partition], partitions=partitions)

    def shapes(self, topics: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return id and number of partitions per topic; the id is empty where the cluster does not tell."""
        answers = self._client().describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S)
        shapes = {}
        for topic, answer in answers.items():
            try:
                found = answer.result()
            except KafkaException as error:
                if error.args[0].name() not in {"UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"}:
                    raise
                shapes[topic] = ("", len(self._consumer.list_topics(topic, REQUEST_TIMEOUT_S).topics[topic].partitions))
            else:
                name = str(found.topic_id)
                shapes[topic] = ("" if name == _NO_TOPIC_ID else name, len(found.partitions))
        return shapes

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return log_start and log_end per partition."""
        named = list(partitions)
        starts = self._list_offsets(named, _SPECS.earliest())
        ends = self._list_offsets(named, _SPECS.latest())
        return {partition: (starts[partition], ends[partition]) for partition in named}

    def _list_offsets(self, partitions: Iterable[TopicPartition], spec: Any) -> dict[TopicPartition, int]:
        asked = {LibraryPartition(*partition): spec for partition in partitions}
        answers = self._client().list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S) if asked else {}
        return {
            TopicPartition(name.topic, name.partition): int(answer.result().offset) for name, answer in answers.items()
        }

    def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LibraryPartition]:
        asked = [LibraryPartition(*partition) for partition in partitions]
        answers = self._consumer.committed(asked, timeout=REQUEST_TIMEOUT_S)
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
        return {TopicPartition(each.topic, each.partition): each for each in answers if each.offset >= 0}

    def _times(self, partitions: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        asked = [LibraryPartition(*partition, time_ms) for partition in partitions]
        answers = self._consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
        return {TopicPartition(each.topic, each.partition): each.offset for each in answers if each.offset >= 0}

    def _found(
        self,
        partition: TopicPartition,
        shape: tuple[str, int],
        bounds: tuple[int, int],
        committed: Mapping[TopicPartition, LibraryPartition],
        times: Mapping[TopicPartition, int],
    ) -> Found:
        topic_id, partitions = shape
        notes = [_note_of(each) for name, each in committed.items() if name.topic == partition.topic]
        own = committed.get(partition)
        note = None if own is None else _note_of(own)
        return Found(
            topic_id,
            *bounds,
            partitions=partitions,
            committed=own.offset if own is not None else None,
            metadata=metadata_of(own) if own is not None else "",
            committed_topic_id="" if own is None else note.topic_id if note else topic_id_of(metadata_of(own)),
            leader_epoch=-1 if own is None or own.leader_epoch is None else own.leader_epoch,
            at_time=times.get(partition),
            group_started=bool(notes),
            partitions_at_start=max((each.partitions for each in notes if each is not None), default=0),
        )

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._connection.config({"client.id": "anabranch"}), logger=LIBRARY_LOGGER)
        return self._admin


def _note_of(answer: LibraryPartition) -> Note | None:
    return read_note((answer.metadata or "").rstrip("\0"))


def metadata_of(answer: LibraryPartition) -> str:
    """Return what control gave as metadata of a commit: without the library's NUL at the end, or our own note."""
    metadata = (answer.metadata or "").rstrip("\0")
    return "" if read_note(metadata) else metadata
