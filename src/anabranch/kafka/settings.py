"""What the source and the sink are told, and the librdkafka configurations that follow from it.

A user's own librdkafka settings win over ours, except for those on which the contract rests: who decides where reading
begins, who commits, and that outputs are idempotent. These are refused with a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from anabranch.core.errors import UsageError
from anabranch.kafka.client import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMIT_TIMEOUT_S: Final = 10.0
"""A broker that takes a request and never answers costs a callback so long: `socket.timeout.ms`."""

STATISTICS_INTERVAL: Final = "statistics.interval.ms"
HEARTBEAT_S: Final = 3.0
MAX_POLL_INTERVAL_S: Final = 300.0

Lost = Literal["go on", "halt"]
BeyondEnd = Literal["halt", "log_end", "log_start"]

_SOURCE_OWN: Final = {
    "auto.offset.reset": "where reading begins is said by read(start=…)",
    "enable.auto.commit": "what is settled is committed by the pipeline",
    "enable.auto.offset.store": "what is settled is committed by the pipeline",
    "enable.partition.eof": "the ends of partitions are followed by the pipeline",
    "group.id": "the group is the pipeline's name",
    "on_commit": "callbacks are the pipeline's",
    "error_cb": "callbacks are the pipeline's",
}
_SINK_OWN: Final = {
    "acks": "an output counts as written when all in-sync replicas have it",
    "delivery.report.only.error": "each output is accounted for",
    "delivery.timeout.ms": "an output is sent until it is acknowledged",
    "enable.idempotence": "a re-sent output must not overtake or repeat another",
    "message.timeout.ms": "an output is sent until it is acknowledged",
    "error_cb": "callbacks are the pipeline's",
    "on_delivery": "callbacks are the pipeline's",
}
_CONSUMERS: Final = frozenset(
    {
        "auto.commit.interval.ms",
        "check.crcs",
        "coordinator.query.interval.ms",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
    }
)
_PRODUCERS: Final = frozenset(
    {
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "linger.ms",
        "message.send.max.retries",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "retries",
        "sticky.partitioning.linger.ms",
    }
)
"""The user's settings are for both clients; the library warns of what the other one alone knows."""
# With group.protocol=consumer (KIP-848) these are the broker's, and librdkafka refuses them.
_CLASSIC_ONLY: Final = ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """How to read."""

    bootstrap: str
    extra: Mapping[str, str] = field(default_factory=dict)
    """The user's own librdkafka settings."""
    client_id: str = "anabranch"
    grace_s: float = 5.0
    """How long a partition that moves may drain."""
    session_timeout_s: float = 10.0
    records_max: int = 50_000
    """The gate's bound: fetches, batches and what is held back follow from it."""
    bytes_max: int = 64 * 1024 * 1024
    fetch_records_max: int = 1000
    """The largest batch that is handed over at once; smaller when the bound is."""
    batches_outstanding_max: int = 4
    """How many batches may be handed over and not yet taken."""
    reach_s: float = 10.0
    """How long a start waits for a broker that does not answer."""
    topics_must_exist: bool = True
    on_lost_to_retention: Lost = "go on"
    """What to do when retention removed records before they were read; they are counted in any case."""
    on_beyond_end: BeyondEnd = "halt"
    """What to do when a position lies beyond the end of its log: the log was truncated or made anew."""
    leave_static: bool = False
    """Free a static member's place at a clean close (plaintext only); else it is free when its session ends."""

    def __post_init__(self) -> None:
        _refuse(self.extra, _SOURCE_OWN, "source")
        interval_s = _milliseconds(self.extra, "max.poll.interval.ms", MAX_POLL_INTERVAL_S)
        if self.grace_s + COMMIT_TIMEOUT_S + HEARTBEAT_S >= interval_s:
            raise UsageError(
                f"grace of {self.grace_s:g} s: a revoke could take {self.grace_s + COMMIT_TIMEOUT_S + HEARTBEAT_S:g} s "
                f"with its commit, more than max.poll.interval.ms allows ({interval_s:g} s); lower grace_s or raise it"
            )

    @property
    def connection(self) -> Connection:
        """Return which cluster, for the clients of this package."""
        return Connection(self.bootstrap, self.extra)

    @property
    def batch_records_max(self) -> int:
        """Return the largest batch: a fiftieth of the bound, so that what is under way beyond the gate stays small."""
        return max(1, min(self.fetch_records_max, self.records_max // 50))

    @property
    def batch_bytes_max(self) -> int:
        """Return about how many bytes a batch may have."""
        return max(16 * 1024, self.bytes_max // 64)

    @property
    def max_poll_interval_s(self) -> float:
        """Return how long the thread may stay away from the library."""
        return _milliseconds(self.extra, "max.poll.interval.ms", MAX_POLL_INTERVAL_S)

    @property
    def counts_received(self) -> bool:
        """Tell whether the user wants the bytes counted that come from the network: `statistics.interval.ms` above 0.

        The library counts them in any case; to be told costs about a tenth of a millisecond each time.
        """
        return _milliseconds(self.extra, STATISTICS_INTERVAL, 0.0) > 0

    @property
    def instance_id(self) -> str | None:
        """Return the name of a static member."""
        return self.extra.get("group.instance.id") or None

    @property
    def incremental(self) -> bool:
        """Tell whether assignments are given and taken piece by piece."""
        if self.extra.get("group.protocol", "classic").lower() == "consumer":
            return True
        return "cooperative" in self.extra.get("partition.assignment.strategy", "cooperative-sticky")

    def consumer_config(self, group: str) -> dict[str, Any]:
        """Return the configuration of the consumer, callbacks apart."""
        # A fetch of one partition must fit well into what may be held back of it, in bytes and, for records of 100
        # bytes, in records: else every closing of a gate throws away what was fetched.
        partition_fetch = _clamp(min(self.bytes_max // 512, self.records_max * 100 // 32), 16 * 1024, 1024 * 1024)
        fetch = _clamp(self.bytes_max // 16, partition_fetch, 16 * 1024 * 1024)
        defaults: dict[str, Any] = {
            "auto.offset.reset": "error",
            "client.id": self.client_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # The end of a partition shows where the position stands behind markers and an aborted tail.
            "enable.partition.eof": True,
            "fetch.error.backoff.ms": 100,
            "fetch.max.bytes": fetch,
            "fetch.queue.backoff.ms": 5,  # the default of 1,000 stalls a fast consumer for up to a second
            # A partition that is resumed or assigned waits for the answer to a fetch of the others, so long at most.
            "fetch.wait.max.ms": 50,
            "group.id": group,
            "max.partition.fetch.bytes": partition_fetch,
            "message.max.bytes": min(fetch, 1_000_000),  # librdkafka wants fetch.max.bytes to be no smaller
            "partition.assignment.strategy": "cooperative-sticky",
            "queued.min.messages": _clamp(self.records_max // 16, 100, 100_000),
            "queued.max.messages.kbytes": max(1, fetch // 1024),
            "reconnect.backoff.max.ms": 1000,
            "session.timeout.ms": int(self.session_timeout_s * 1000),
            "heartbeat.interval.ms": int(min(HEARTBEAT_S, self.session_timeout_s / 3) * 1000),
            "socket.timeout.ms": int(COMMIT_TIMEOUT_S * 1000),
            "topic.metadata.refresh.interval.ms": 30_000,  # new partitions and topics of a pattern are found by it
        }
        config = {**self.connection.config(defaults), "message.max.bytes": defaults["message.max.bytes"]}
        config = {name: value for name, value in config.items() if name not in _PRODUCERS}
        if self.extra.get("group.protocol", "classic").lower() == "consumer":
            for name in _CLASSIC_ONLY:
                config.pop(name, None)
        return config


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How to write outputs and dead letters."""

    bootstrap: str
    extra: Mapping[str, str] = field(default_factory=dict)
    """The user's own librdkafka settings."""
    client_id: str = "anabranch"
    topic: str | None = None
    """Where outputs go mostly: found, or made, at start."""
    dead_letter_topic: str | None = None
    partitions: int | None = None
    """Partitions of topics that are made on demand; None: as many as the source topic has, or as the broker likes."""
    source_topics: tuple[str, ...] = ()
    """What the pipeline reads: topics made on demand get as many partitions, and letters room for its records."""
    create_topics: bool = True
    backlog_outputs_max: int = 100_000
    """How many outputs may wait in the client library; the rest waits here, bounded by the gate."""
    refusal_s: float = 30.0
    """How long a topic may be missing, where none are made on demand, before that counts as a refusal."""

    def __post_init__(self) -> None:
        _refuse(self.extra, _SINK_OWN, "sink")

    @property
    def connection(self) -> Connection:
        """Return which cluster, for the clients of this package."""
        return Connection(self.bootstrap, self.extra)

    def producer_config(self) -> dict[str, Any]:
        """Return the configuration of the producer, callbacks apart."""
        defaults: dict[str, Any] = {
            "acks": "all",
            "allow.auto.create.topics": False,  # topics are made here, with the right settings, or not at all
            "client.id": self.client_id,
            "enable.idempotence": True,
            # One acknowledgement at a time took 0.17 ms, and 1.4 ms with 0.5; 5, the default, costs 5 ms per step of a
            # chain. Under load batches form by themselves while earlier ones are under way.
            "linger.ms": 0,
            "message.max.bytes": 1_000_000_000,  # the broker knows the limit of the topic; ours would only be another
            "message.timeout.ms": 0,
            "partitioner": "murmur2_random",  # as the Java client does it
            "queue.buffering.max.messages": self.backlog_outputs_max,
            "reconnect.backoff.max.ms": 1000,
        }
        config = self.connection.config(defaults)
        config.pop(STATISTICS_INTERVAL, None)  # it is the source that counts
        return {name: value for name, value in config.items() if name not in _CONSUMERS}


def _refuse(extra: Mapping[str, str], own: Mapping[str, str], part: str) -> None:
    for name, why in own.items():
        if name in extra:
            raise UsageError(f"kafka setting {name} cannot be set for the {part}: {why}; leave it out")


def _milliseconds(extra: Mapping[str, str], name: str, default_s: float) -> float:
    try:
        return float(extra[name]) / 1000 if name in extra else default_s
    except ValueError:
        raise UsageError(f"kafka setting {name}: given {extra[name]!r}, allowed is a number of milliseconds") from None


def _clamp(number: int, low: int, high: int) -> int:
    return max(low, min(number, high))
