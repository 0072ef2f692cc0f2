"""The configs of a topic: Kafka's names, our defaults, what each may be.

One table; CreateTopics validates by it, DescribeConfigs prints it, `log_config` turns it into what a log needs.
A config that we would not honour is refused: an option that is taken and has no effect is a lie.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from anabranch.broker.log.config import LogConfig
from anabranch.core.errors import UsageError
from anabranch.core.options import BrokerOptions


class ConfigType(IntEnum):
    """DescribeConfigs 3: what kind of value a config has."""

    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


class ConfigSource(IntEnum):
    """DescribeConfigs 1: where a value comes from."""

    TOPIC = 1
    BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One row of the table."""

    name: str
    type: ConfigType
    default: Callable[[BrokerOptions], str]
    allowed: tuple[str, ...] | tuple[int, int]
    """The values that may be given, or the bounds of a number."""
    sentence: str

    def check(self, value: str | None) -> str:
        """Answer the value as it is stored; raise UsageError with what would be right."""
        if value is None:
            raise UsageError(f"{self.name} needs a value")
        if self.type in (ConfigType.STRING, ConfigType.LIST):
            if value not in self.allowed:
                raise UsageError(f"{self.name}={value} is not served; allowed: {', '.join(map(str, self.allowed))}")
            return value
        low, high = int(self.allowed[0]), int(self.allowed[1])
        if not re.fullmatch(r"-?[0-9]{1,19}", value):
            raise UsageError(f"{self.name}={value} is not a whole number")
        number = int(value)
        if not low <= number <= high:
            raise UsageError(f"{self.name}={value} is out of bounds; allowed: {low} to {high}")
        return str(number)


LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1


def _milliseconds(seconds: float) -> str:
    return str(-1 if seconds < 0 else int(seconds * 1000))


_ROWS: Final = (
    TopicConfig(
        "cleanup.policy",
        ConfigType.LIST,
        lambda _: "delete",
        ("delete",),
        "What happens to old segments: they are deleted. Compaction is not served yet.",
    ),
    TopicConfig(
        "compression.type",
        ConfigType.STRING,
        lambda _: "producer",
        ("producer",),
        "Batches are kept as their producer compressed them.",
    ),
    TopicConfig(
        "index.interval.bytes",
        ConfigType.INT,
        lambda options: str(options.index_interval_bytes),
        (1, INT_MAX),
        "How many bytes of log lie between two entries of the index.",
    ),
    TopicConfig(
        "max.message.bytes",
        ConfigType.INT,
        lambda options: str(options.message_bytes_max),
        (1, INT_MAX),
        "The largest record batch that is taken, after compression.",
    ),
    TopicConfig(
        "message.timestamp.type",
        ConfigType.STRING,
        lambda _: "CreateTime",
        ("CreateTime", "LogAppendTime"),
        "Whether records keep their producer's time or get the time of their append.",
    ),
    TopicConfig(
        "min.insync.replicas",
        ConfigType.INT,
        lambda _: "1",
        (1, 1),
        "How many replicas must have a record before acks=all is answered: the one there is.",
    ),
    TopicConfig(
        "retention.bytes",
        ConfigType.LONG,
        lambda options: str(options.retention_bytes),
        (-1, LONG_MAX),
        "How large a partition may grow before its oldest segments go; -1 for no limit.",
    ),
    TopicConfig(
        "retention.ms",
        ConfigType.LONG,
        lambda options: _milliseconds(options.retention_s),
        (-1, LONG_MAX),
        "How old a segment's newest record may be before the segment goes; -1 for ever.",
    ),
    TopicConfig(
        "segment.bytes",
        ConfigType.INT,
        lambda options: str(options.segment_bytes),
        (1024, INT_MAX),
        "How large a segment file grows before the next one is begun.",
    ),
    TopicConfig(
        "segment.ms",
        ConfigType.LONG,
        lambda options: _milliseconds(options.segment_s),
        (1, LONG_MAX),
        "How old a segment grows before the next one is begun.",
    ),
)
TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {row.name: row for row in _ROWS}


def check_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Answer the configs as they are stored; raise UsageError for the first that cannot be."""
    checked = {}
    for name, value in configs.items():
        row = TOPIC_CONFIGS.get(name)
        if row is None:
            raise UsageError(f"unknown topic config {name}; known: {', '.join(TOPIC_CONFIGS)}")
        checked[name] = row.check(value)
    return checked


def log_config(configs: Mapping[str, str], options: BrokerOptions) -> LogConfig:
    """Answer what a partition's log needs to know."""

    def number(name: str) -> int:
        return int(configs.get(name) or TOPIC_CONFIGS[name].default(options))

    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        message_bytes_max=number("max.message.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        timestamp_type=configs.get("message.timestamp.type", "CreateTime"),
        wait_for_sync=options.flush == "always",
    )
