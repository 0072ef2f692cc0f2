"""The options of `format("anabranch")`: those of Spark's Kafka source and sink, as far as there is use for them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import UsageError
from anabranch.core.work import TopicPartition
from anabranch.kafka.extents import Topics
from anabranch.spark.positions import EARLIEST, LATEST, Start

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTAGE_S: Final = 300.0
_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_READ: Final = (
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "includeHeaders",
    "outageSeconds",
)
_WRITE: Final = ("topic", "createTopics", "partitions")
_SPARKS: Final = frozenset({"checkpointlocation", "path", "queryname"})  # what Spark adds for itself


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query reads, and how. Picklable: readers carry it to their workers."""

    bootstrap: str
    kafka: Mapping[str, str]
    """librdkafka's own settings."""
    topics: Topics
    start: Start
    end: Start
    """Where a batch read ends."""
    rows_max: int | None
    """How many offsets a micro-batch has at most."""
    fail_on_data_loss: bool
    headers: bool
    outage_s: float
    """How long Kafka may stay away before a query fails."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where a query writes."""

    bootstrap: str
    kafka: Mapping[str, str]
    topic: str | None
    """Where all rows go; None: a column says it."""
    create_topics: bool
    partitions: int | None
    """How many partitions a topic gets that is made on demand; None: as many as the broker likes."""


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read the options of a read; raise UsageError for what cannot be."""
    options = _known(given, _READ, "read")
    if streaming and "endingoffsets" in options:
        raise UsageError("option endingOffsets is for spark.read: a stream ends with trigger(availableNow=True)")
    names, pattern = options.get("subscribe"), options.get("subscribepattern")
    if (names is None) == (pattern is None):
        raise UsageError('give either option subscribe (topics, as in "orders,returns") or option subscribePattern')
    start = _start(options, "startingOffsets", LATEST if streaming else EARLIEST)
    end = _start(options, "endingOffsets", LATEST)
    if not streaming and LATEST in {start.everywhere, *start.partitions.values()}:
        raise UsageError(
            "option startingOffsets: a batch that begins at latest reads nothing; give earliest or offsets"
        )
    if EARLIEST in {end.everywhere, *end.partitions.values()}:
        raise UsageError("option endingOffsets: a batch that ends at earliest reads nothing; give latest or offsets")
    return SourceOptions(
        *_connection(given),
        _topics(names, pattern),
        start,
        end,
        _number(options, "maxOffsetsPerTrigger"),
        _truth(options, "failOnDataLoss", default=True),
        _truth(options, "includeHeaders", default=False),
        float(_number(options, "outageSeconds") or OUTAGE_S),
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Read the options of a write; raise UsageError for what cannot be."""
    options = _known(given, _WRITE, "write")
    return SinkOptions(
        *_connection(given),
        options.get("topic"),
        _truth(options, "createTopics", default=True),
        _number(options, "partitions"),
    )


def _known(given: Mapping[str, str], names: tuple[str, ...], verb: str) -> dict[str, str]:
    """Return the options that are ours, by lower-case name; refuse those that nobody knows."""
    allowed = {name.lower() for name in names}
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in allowed and name not in _SPARKS and not name.startswith("kafka."):
            raise UsageError(
                f'there is no option {name} for this {verb}: there are {", ".join(names)}, and "kafka." before any '
                "setting of librdkafka's"
            )
    return options


def _connection(given: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    settings = {name.lower(): value for name, value in given.items() if name.lower().startswith("kafka.")}
    bootstrap = settings.pop(_BOOTSTRAP, "")
    if not bootstrap:
        raise UsageError(f"option {_BOOTSTRAP} is missing: name a broker, as in localhost:9092")
    return bootstrap, {name.removeprefix("kafka."): value for name, value in settings.items()}


def _topics(names: str | None, pattern: str | None) -> Topics:
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"option subscribePattern: {pattern!r} is no pattern: {error}") from None
        return Topics(pattern=pattern)
    found = tuple(dict.fromkeys(name.strip() for name in (names or "").split(",") if name.strip()))
    if not found:
        raise UsageError("option subscribe names no topic")
    return Topics(found)


def _start(options: Mapping[str, str], name: str, default: int) -> Start:
    text = options.get(name.lower())
    if text is None:
        return Start(default)
    if text.strip().lower() in _WORDS:
        return Start(_WORDS[text.strip().lower()])
    try:
        found: Any = json.loads(text)
        partitions = {
            TopicPartition(topic, int(number)): int(offset)
            for topic, numbers in found.items()
            for number, offset in numbers.items()
        }
        if any(offset < EARLIEST for offset in partitions.values()):
            raise ValueError
    except (AttributeError, TypeError, ValueError):
        raise UsageError(
            f"option {name}: given {text!r}, allowed is earliest, latest, or offsets by topic and partition as in "
            '{"orders": {"0": 42, "1": -2}}, where -2 is earliest and -1 is latest'
        ) from None
    return Start(default, partitions)


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise UsageError(f"option {name}: given {text!r}, allowed is a whole number from 1 on")
    return int(text)


def _truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise UsageError(f"option {name}: given {text!r}, allowed is true or false")
    return text == "true"
