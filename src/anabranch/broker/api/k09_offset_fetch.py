"""OffsetFetch: a group's committed positions with their metadata, as they were sent.

Null topics mean all of them (from version 2). From version 8 several groups are asked for at once. A position that was
committed on a topic which was deleted and made again since is not believed: -1, as if there were none.
"""

from collections.abc import Mapping

from anabranch.broker.api.context import Context
from anabranch.broker.group.offsets import CommittedOffset
from anabranch.broker.node import Node
from anabranch.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_Found = dict[str, list[tuple[int, CommittedOffset | None]]]


def handle(node: Node, request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    """Look up each group."""
    if context.version >= 8:
        groups = []
        for group in {group.group_id: group for group in request.groups}.values():
            wanted = None if group.topics is None else {topic.name: topic.partition_indexes for topic in group.topics}
            groups.append(
                OffsetFetchResponseGroup(group_id=group.group_id, topics=_many(_find(node, group.group_id, wanted)))
            )
        return OffsetFetchResponse(groups=groups)
    wanted = None if request.topics is None else {topic.name: topic.partition_indexes for topic in request.topics}
    return OffsetFetchResponse(topics=_one(_find(node, request.group_id, wanted)))


def _find(node: Node, group_id: str, wanted: Mapping[str, list[int]] | None) -> _Found:
    committed: dict[tuple[str, int], CommittedOffset] = {}
    for entry in node.groups.coordinator.fetch_offsets(group_id).values():
        topic = node.topics.get(entry.topic)
        if topic is not None and topic.topic_id == entry.topic_id:
            committed[entry.topic, entry.partition] = entry
    found: _Found = {}
    if wanted is None:
        for (name, partition), entry in committed.items():
            found.setdefault(name, []).append((partition, entry))
    else:
        for name, partitions in wanted.items():
            found[name] = [(partition, committed.get((name, partition))) for partition in partitions]
    return found


def _many(found: _Found) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            name=name,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=partition, committed_offset=-1)
                if entry is None
                else OffsetFetchResponsePartitions(
                    partition_index=partition,
                    committed_offset=entry.position,
                    committed_leader_epoch=entry.leader_epoch,
                    metadata=entry.metadata,
                )
                for partition, entry in partitions
            ],
        )
        for name, partitions in found.items()
    ]


def _one(found: _Found) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=part.partition_index,
                    committed_offset=part.committed_offset,
                    committed_leader_epoch=part.committed_leader_epoch,
                    metadata=part.metadata,
                )
                for part in topic.partitions
            ],
        )
        for topic in _many(found)
    ]
