"""API 1, fetch: versions 0 to 17, flexible from 12.

Written by tools/generate_messages.py; change it there.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.broker.wire.schema import NO_ID, MessageWire, RecordsOut, array, message, wire


@dataclass(slots=True, kw_only=True)
class ReplicaState:
    replica_id: int = field(default=-1, metadata=wire("int32"))
    replica_epoch: int = field(default=-1, metadata=wire("int64"))


@dataclass(slots=True, kw_only=True)
class FetchPartition:
    partition: int = field(default=0, metadata=wire("int32"))
    current_leader_epoch: int = field(default=-1, metadata=wire("int32", "9+"))
    fetch_offset: int = field(default=0, metadata=wire("int64"))
    last_fetched_epoch: int = field(default=-1, metadata=wire("int32", "12+"))
    log_start_offset: int = field(default=-1, metadata=wire("int64", "5+"))
    partition_max_bytes: int = field(default=0, metadata=wire("int32"))
    replica_directory_id: bytes = field(default=NO_ID, metadata=wire("uuid", "17+", tag=0))


@dataclass(slots=True, kw_only=True)
class FetchTopic:
    topic_id: bytes = field(default=NO_ID, metadata=wire("uuid", "13+"))
    topic: str = field(default="", metadata=wire("string", "0-12"))
    partitions: list[FetchPartition] = field(default_factory=list, metadata=array(FetchPartition))


@dataclass(slots=True, kw_only=True)
class ForgottenTopic:
    topic_id: bytes = field(default=NO_ID, metadata=wire("uuid", "13+"))
    topic: str = field(default="", metadata=wire("string", "7-12"))
    partitions: list[int] = field(default_factory=list, metadata=array("int32"))


@dataclass(slots=True, kw_only=True)
class FetchRequest:
    WIRE: ClassVar[MessageWire] = message(key=1, versions="0-17", flexible="12+")

    cluster_id: str | None = field(default=None, metadata=wire("string", "12+", nullable="12+", tag=0))
    replica_state: ReplicaState | None = field(default=None, metadata=wire(ReplicaState, "15+", tag=1))
    replica_id: int = field(default=-1, metadata=wire("int32", "0-14"))
    max_wait_ms: int = field(default=0, metadata=wire("int32"))
    min_bytes: int = field(default=0, metadata=wire("int32"))
    max_bytes: int = field(default=2147483647, metadata=wire("int32", "3+"))
    isolation_level: int = field(default=0, metadata=wire("int8", "4+"))
    session_id: int = field(default=0, metadata=wire("int32", "7+"))
    session_epoch: int = field(default=-1, metadata=wire("int32", "7+"))
    topics: list[FetchTopic] = field(default_factory=list, metadata=array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list, metadata=array(ForgottenTopic, "7+"))
    rack_id: str = field(default="", metadata=wire("string", "11+"))


@dataclass(slots=True, kw_only=True)
class EpochEndOffset:
    epoch: int = field(default=-1, metadata=wire("int32"))
    end_offset: int = field(default=-1, metadata=wire("int64"))


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch:
    leader_id: int = field(default=-1, metadata=wire("int32"))
    leader_epoch: int = field(default=-1, metadata=wire("int32"))


@dataclass(slots=True, kw_only=True)
class SnapshotId:
    end_offset: int = field(default=-1, metadata=wire("int64"))
    epoch: int = field(default=-1, metadata=wire("int32"))


@dataclass(slots=True, kw_only=True)
class AbortedTransaction:
    producer_id: int = field(default=0, metadata=wire("int64"))
    first_offset: int = field(default=0, metadata=wire("int64"))


@dataclass(slots=True, kw_only=True)
class PartitionData:
    partition_index: int = field(default=0, metadata=wire("int32"))
    error_code: int = field(default=0, metadata=wire("int16"))
    high_watermark: int = field(default=0, metadata=wire("int64"))
    last_stable_offset: int = field(default=-1, metadata=wire("int64", "4+"))
    log_start_offset: int = field(default=-1, metadata=wire("int64", "5+"))
    diverging_epoch: EpochEndOffset | None = field(default=None, metadata=wire(EpochEndOffset, "12+", tag=0))
    current_leader: LeaderIdAndEpoch | None = field(default=None, metadata=wire(LeaderIdAndEpoch, "12+", tag=1))
    snapshot_id: SnapshotId | None = field(default=None, metadata=wire(SnapshotId, "12+", tag=2))
    aborted_transactions: list[AbortedTransaction] | None = field(
        default_factory=list, metadata=array(AbortedTransaction, "4+", nullable="4+")
    )
    preferred_read_replica: int = field(default=-1, metadata=wire("int32", "11+"))
    records: RecordsOut = field(default=None, metadata=wire("records", nullable="0+"))


@dataclass(slots=True, kw_only=True)
class FetchableTopicResponse:
    topic_id: bytes = field(default=NO_ID, metadata=wire("uuid", "13+"))
    topic: str = field(default="", metadata=wire("string", "0-12"))
    partitions: list[PartitionData] = field(default_factory=list, metadata=array(PartitionData))


@dataclass(slots=True, kw_only=True)
class NodeEndpoint:
    node_id: int = field(default=0, metadata=wire("int32"))
    host: str = field(default="", metadata=wire("string"))
    port: int = field(default=0, metadata=wire("int32"))
    rack: str | None = field(default=None, metadata=wire("string", nullable="0+"))


@dataclass(slots=True, kw_only=True)
class FetchResponse:
    WIRE: ClassVar[MessageWire] = message(key=1, versions="0-17", flexible="12+")

    throttle_time_ms: int = field(default=0, metadata=wire("int32", "1+"))
    error_code: int = field(default=0, metadata=wire("int16", "7+"))
    session_id: int = field(default=0, metadata=wire("int32", "7+"))
    responses: list[FetchableTopicResponse] = field(default_factory=list, metadata=array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, metadata=array(NodeEndpoint, "16+", tag=0))
