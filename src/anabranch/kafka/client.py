"""How clients of any Kafka are configured, and how the library's errors become ours.

Every error of the library passes through `translated` once and keeps its cause: what the caller can mend is a
UsageError, a cluster that does not answer an UnreachableError, the rest a PeerError. The library's own log lines go to
the logger `anabranch.kafka.librdkafka`, which is silent unless someone listens.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from anabranch.core.errors import AnabranchError, PeerError, UsageError
from anabranch.kafka.errors import GIVEN_IN_PYTHON, FencedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REACH_TIMEOUT_S = 3.0  # long enough for a broker that is just starting, short enough for a person who waits

LIBRARY_LOGGER = logging.getLogger("anabranch.kafka.librdkafka")
LIBRARY_LOGGER.addHandler(logging.NullHandler())  # else the stdlib prints warnings of loggers that nobody set up

# Names of the library's errors; a leading underscore marks those that it found itself, without asking a broker.
_UNREACHABLE = frozenset(
    {
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
    }
)
_USAGE = frozenset(
    {
        "_INVALID_ARG",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_GROUP",
        "TOPIC_ALREADY_EXISTS",
        "TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PART",
        "INVALID_PARTITIONS",
        "INVALID_REPLICATION_FACTOR",
        "INVALID_CONFIG",
        "POLICY_VIOLATION",
        "GROUP_ID_NOT_FOUND",
        "INVALID_GROUP_ID",
        "INCONSISTENT_GROUP_PROTOCOL",
        "MSG_SIZE_TOO_LARGE",
        "_AUTO_OFFSET_RESET",
    }
)


# The library's texts begin with the name of a broker and end with the state of its connection.
_LIBRARY_NOISE = re.compile(r"^\S+: | \(after \d+ms in state \w+.*\)$")


@dataclass(frozen=True, slots=True)
class Connection:
    """Which cluster, and what librdkafka is told besides."""

    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each of these was given, if that is not in `kafka={…}`."""

    def config(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return a librdkafka configuration: our defaults, then the address, then what the user set, which wins."""
        return {**defaults, "bootstrap.servers": self.bootstrap, **self.settings}

    def unreachable(self, reason: str) -> UnreachableError:
        """Return the error for a cluster that does not answer."""
        return UnreachableError(
            f"no broker answers at {self.bootstrap} ({reason}): start one with `anabranch broker`, "
            "or name another with --bootstrap"
        )


class LastError:
    """Remembers the library's latest complaint: its errors arrive apart from the call that suffers from them."""

    def __init__(self) -> None:
        """Begin with nothing to report."""
        self.reason = ""
        self.all_down = False

    def __call__(self, error: KafkaError) -> None:
        """Take an error of the library's error callback."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self.all_down = True
        else:
            self.reason = _LIBRARY_NOISE.sub("", error.str())


def is_unreachable(error: KafkaError) -> bool:
    """Tell whether an error means that no broker answered."""
    return error.name() in _UNREACHABLE


def translated(error: KafkaError, doing: str) -> AnabranchError:
    """Return our error for one of the library's. What was fatal before is reported as _FATAL, with the first text."""
    text = f"{doing}: {error.str()}"
    if is_unreachable(error):
        return UnreachableError(f"{text}: is the broker running? start one with `anabranch broker`")
    if error.name() in {"FENCED_INSTANCE_ID", "_FENCED"} or (error.name() == "_FATAL" and "fenced" in error.str()):
        return FencedError(f"{text}: give each member a group.instance.id of its own, or run only one of them")
    return UsageError(text) if error.name() in _USAGE else PeerError(text)


@contextmanager
def translating(doing: str, connection: Connection | None = None) -> Iterator[None]:
    """Turn an error of the library inside the block into ours; with a connection, say which setting was meant."""
    try:
        yield
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if connection is not None and cause.name() == "_INVALID_ARG" and connection.settings:
            raise misconfigured(connection, cause.str()) from error
        raise translated(cause, doing) from error


def misconfigured(connection: Connection, complaint: str) -> UsageError:
    """Return the error for settings that the library refuses: which of the user's own, and where he gave it."""
    # The library names some by another name of the same setting; then any of them may be meant.
    named = [name for name in connection.settings if name in complaint] or list(connection.settings)
    places = ", ".join(f"{name} (given in {connection.sources.get(name, GIVEN_IN_PYTHON)})" for name in named)
    return UsageError(f"kafka setting {places}: {complaint}")


def metadata(
    handle: Any,
    connection: Connection,
    last_error: LastError,
    topic: str | None = None,
    *,
    timeout_s: float = REACH_TIMEOUT_S,
) -> Any:
    """Ask the cluster for its metadata; raise UnreachableError within a few seconds when nobody answers.

    `handle` is any of the library's clients: the one call that all of them have.
    """
    try:
        if topic is None:
            return handle.list_topics(timeout=timeout_s)
        return handle.list_topics(topic, timeout=timeout_s)
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if not is_unreachable(cause):
            raise translated(cause, f"asking {connection.bootstrap} for its topics") from error
        handle.poll(0)  # delivers the reason to `last_error`
        raise connection.unreachable(last_error.reason or cause.str()) from error
