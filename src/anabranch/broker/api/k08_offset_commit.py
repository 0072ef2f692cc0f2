"""OffsetCommit: store a group's positions, fenced by member and generation; answered when they are durable.

Metadata is kept exactly as sent, at most 4,096 UTF-16 units. A topic or partition that does not exist is answered
UNKNOWN_TOPIC_OR_PARTITION and does not stop the others. The retention time of versions 2 to 4 is not used.
"""

from anabranch.broker.api.context import Context
from anabranch.broker.group.effects import ReplyCommit
from anabranch.broker.group.events import Commit, CommitOffset
from anabranch.broker.node import Node
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


async def handle(node: Node, request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    """Commit what exists, answer for all."""
    offsets = tuple(_existing(node, request))
    reply = await node.groups.ask(
        lambda token: Commit(
            token=token,
            group_id=request.group_id,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            offsets=offsets,
        )
    )
    assert isinstance(reply, ReplyCommit)
    codes = {(topic, partition): code for topic, partition, code in reply.partitions}
    missing = reply.error if reply.error is not ErrorCode.NONE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                OffsetCommitResponsePartition(
                    partition_index=part.partition_index,
                    error_code=codes.get((topic.name, part.partition_index), missing),
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)


def _existing(node: Node, request: OffsetCommitRequest) -> list[CommitOffset]:
    offsets = []
    for wanted in request.topics:
        topic = node.topics.get(wanted.name)
        if topic is not None:
            offsets += [
                CommitOffset(
                    topic=wanted.name,
                    partition=part.partition_index,
                    position=part.committed_offset,
                    leader_epoch=part.committed_leader_epoch,
                    metadata=part.committed_metadata,
                    topic_id=topic.topic_id,
                )
                for part in wanted.partitions
                if 0 <= part.partition_index < len(topic.partitions)
            ]
    return offsets
