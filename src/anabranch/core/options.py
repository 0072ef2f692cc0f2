"""Options: small frozen groups, each option described once, in the field that holds it.

A field's metadata is the table: default (and by it the type), bounds, choices, a sentence. Validation, flags,
environment names, keys of the configuration file and the reference page are all made from it; nothing is said twice.
Groups are read once at the edge (`anabranch.cli.config`) and passed on as values. They check themselves when they
are made, so a group that exists is a valid one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

Value = str | int | float | bool | None
_T = TypeVar("_T")

_YEARS_100_S = 3_153_600_000  # no one means more, and in milliseconds it still fits 64 bits
_INT32_MAX = 2_147_483_647  # sizes and positions of the protocol and of the index files are 32 bits wide

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class Rule:
    """What the metadata of a field says about its option, apart from name and default."""

    sentence: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    port_min: int | None = None  # set: the text is HOST:PORT, and this is the lowest port allowed


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table: an option's name, default and rule, and what follows from them."""

    section: str
    name: str
    default: Value
    rule: Rule

    @property
    def kind(self) -> type[Any]:
        """Return the type: that of the default; an option without a default is a text."""
        return str if self.default is None else type(self.default)

    @property
    def flag(self) -> str:
        """Return the name on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def environment(self) -> str:
        """Return the name of the environment variable."""
        return f"ANABRANCH_{self.section}_{self.name}".upper()

    @property
    def allowed(self) -> str:
        """Say in words which values are allowed."""
        if self.rule.choices:
            return " or ".join(self.rule.choices)
        if self.rule.port_min is not None:
            host_port = f"HOST:PORT with a port from {self.rule.port_min} to 65535"
            return f"{host_port}, or nothing" if self.default is None else host_port
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "a text that is not empty"
        number = "a whole number" if self.kind is int else "a number"
        return f"{number} from {self.spell(self.rule.low)} to {self.spell(self.rule.high)}"

    def parse(self, text: str) -> Value:
        """Return the value that a flag or an environment variable spells; raise UsageError if it spells none."""
        if self.default is None and not text:
            return None
        return self.check(self._converted(text))

    def spell(self, value: Value) -> str:
        """Return the text that `parse` reads back as the value."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    def check(self, value: object) -> Value:
        """Return the value as its type; raise UsageError naming the option, what was given and what is allowed."""
        if value is None and self.default is None:
            return None
        if self.kind is str:
            return self._checked_text(value)
        if self.kind is bool:
            if not isinstance(value, bool):
                raise self.refusal(value)
            return value
        return self._checked_number(value)

    def refusal(self, given: object) -> UsageError:
        """Return the error for a value that is not allowed."""
        return UsageError(f"option {self.name}: given {given!r}, allowed is {self.allowed}")

    def _converted(self, text: str) -> Value:
        try:
            if self.kind is bool:
                word = text.strip().lower()
                return True if word in _TRUE else False if word in _FALSE else text
            return text if self.kind is str else self.kind(text)
        except ValueError:
            raise self.refusal(text) from None

    def _checked_text(self, value: object) -> str:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(text, str) or not text or (self.rule.choices and text not in self.rule.choices):
            raise self.refusal(value)
        if self.rule.port_min is not None:
            try:
                _host, port = parse_listen(text)
            except UsageError as error:
                raise UsageError(f"option {self.name}: {error}") from None
            if port < self.rule.port_min:
                raise self.refusal(value)
        return text

    def _checked_number(self, value: object) -> int | float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refusal(value)
        if self.kind is int and not isinstance(value, int):
            raise self.refusal(value)
        low, high = self.rule.low, self.rule.high
        assert low is not None, f"{self.name} has no lower bound"
        assert high is not None, f"{self.name} has no upper bound"
        if not low <= value <= high:  # also refuses what is not a number
            raise self.refusal(value)
        return value if self.kind is int else float(value)


def option(
    default: _T,
    sentence: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    port_min: int | None = None,
) -> _T:
    """Declare an option: a dataclass field whose metadata is its row of the table."""
    rule = Rule(sentence, low, high, choices, port_min)
    return field(default=default, metadata={"rule": rule})


def options_of(group: type[OptionGroup]) -> tuple[Option, ...]:
    """Return the table of a group, in the order in which it was written."""
    rows = []
    for each in fields(group):
        default: Any = each.default  # always there: `option` takes no factory
        rows.append(Option(group.section, each.name, default, each.metadata["rule"]))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """A frozen group of options that checks itself when it is made."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Check each value by its row, then the rules between them."""
        for each in options_of(type(self)):
            object.__setattr__(self, each.name, each.check(getattr(self, each.name)))
        self.check_together()

    def check_together(self) -> None:
        """Check the rules that hold between options; a group that has some says them here."""

    def arguments(self) -> list[str]:
        """Return the flags that spell every value, so that another process can be started with this group."""
        table = options_of(type(self))
        return [flag_of(each, getattr(self, each.name)) for each in table]


def flag_of(each: Option, value: Value) -> str:
    """Return the flag, as one word, that sets an option to a value."""
    if each.kind is bool:
        return each.flag if value else "--no-" + each.flag.removeprefix("--")
    return f"{each.flag}={each.spell(value)}"


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`; an IPv6 address stands in brackets: `[::1]:9092`."""
    host, colon, port_text = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise UsageError(f"given {text!r}: write an IPv6 address in brackets, as in [::1]:9092")
    if not colon or not host:
        raise UsageError(f"given {text!r}, allowed is HOST:PORT, as in 127.0.0.1:9092")
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text) > 65535:
        raise UsageError(f"given {text!r}: {port_text!r} is no port, allowed is a number from 0 to 65535")
    return host, int(port_text)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can connect to the host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False  # a name: it may lead anywhere


@dataclass(frozen=True, slots=True)
class BrokerOptions(OptionGroup):
    """How a broker listens, stores, limits and speaks."""

    section: ClassVar[str] = "broker"

    data_dir: str | Path = option(  # noqa: RUF009 - the default is a text; Path is only accepted
        "./anabranch-data", "Folder that holds topics, offsets and the cluster's identity; one broker at a time."
    )
    listen: str = option("127.0.0.1:9092", "Address to listen on; port 0 picks a free one.", port_min=0)
    advertise: str | None = option(
        None,
        "Address that clients are told to connect to; needed when listening beyond loopback; "
        "without it the address listened on.",
        port_min=1,
    )
    flush: str = option(
        "always",
        "When an acknowledged record is on disk: always (synced before acks=all is answered), "
        "interval (synced every flush_interval_s) or os (when the kernel likes, as Kafka does).",
        choices=("always", "interval", "os"),
    )
    flush_interval_s: float = option(1.0, "Time between syncs with flush=interval.", low=0.001, high=3600)
    auto_create: bool = option(True, "Create a topic when a client first asks for it.")
    default_partitions: int = option(
        1, "Partitions of a topic that is created without saying how many.", low=1, high=100_000
    )
    node_id: int = option(1, "Number of this broker in the cluster.", low=0, high=_INT32_MAX)
    segment_bytes: int = option(
        134_217_728, "Size at which a partition's log goes on in a new file.", low=1024, high=_INT32_MAX
    )
    segment_s: int = option(604_800, "Age at which a partition's log goes on in a new file.", low=1, high=_YEARS_100_S)
    message_bytes_max: int = option(
        1_048_588, "Largest record batch accepted; a topic may set its own max.message.bytes.", low=100, high=_INT32_MAX
    )
    retention_s: int = option(
        604_800, "Age at which closed segments are deleted; -1 keeps them for ever.", low=-1, high=_YEARS_100_S
    )
    retention_bytes: int = option(
        -1, "Size of a partition above which its oldest segments are deleted; -1 is no limit.", low=-1, high=2**62
    )
    index_interval_bytes: int = option(
        4096, "Bytes of log between two entries of the sparse indexes.", low=0, high=_INT32_MAX
    )
    request_bytes_max: int = option(
        104_857_600, "Largest request accepted; a connection that sends a larger one is cut.", low=1024, high=_INT32_MAX
    )
    connections_max: int = option(
        2000, "Connections open at once; one more is closed on arrival.", low=1, high=1_000_000
    )
    in_flight_max: int = option(
        64, "Requests of one connection being worked on; then it is not read until one is answered.", low=1, high=10_000
    )
    buffers_bytes_max: int = option(
        16_777_216,
        "Memory of all receive buffers together, beyond one large request.",
        low=65_536,
        high=1_099_511_627_776,
    )
    frame_s_max: float = option(
        30.0, "Time without progress after which a half-sent request is cut.", low=0.01, high=3600
    )
    idle_s_max: float = option(
        600.0, "Time after which a connection without requests is closed.", low=0.01, high=604_800
    )
    open_files_max: int = option(
        0, "Files the log keeps open; 0 takes what the process limit (ulimit -n) allows.", low=0, high=10_000_000
    )
    group_members_max: int = option(1000, "Members of one consumer group.", low=1, high=100_000)
    groups_max: int = option(10_000, "Consumer groups.", low=1, high=1_000_000)
    session_timeout_s_min: float = option(
        0.5, "Shortest session time-out that a group member may ask for.", low=0.001, high=86_400
    )
    session_timeout_s_max: float = option(
        1800.0, "Longest session time-out that a group member may ask for.", low=0.001, high=86_400
    )
    rebalance_delay_s: float = option(
        0.0, "Time that the first rebalance of an empty group waits for more members.", low=0, high=300
    )
    offsets_retention_s: int = option(
        604_800,
        "Time after which the committed offsets of a group without members are dropped.",
        low=1,
        high=_YEARS_100_S,
    )
    partitions_max: int = option(20_000, "Partitions of all topics together.", low=1, high=1_000_000)
    log_level: str = option(
        "info", "Least important log line that is written.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = option("text", "Shape of a log line on stderr.", choices=("text", "json"))

    @property
    def beyond_loopback(self) -> bool:
        """Tell whether other machines can connect."""
        return not is_loopback(parse_listen(self.listen)[0])

    def check_together(self) -> None:
        """Check that clients can be told an address, and that some session time-out is allowed."""
        if self.beyond_loopback and self.advertise is None:
            raise UsageError(
                f"option listen: given {self.listen!r}, which is not loopback: "
                "say with advertise which HOST:PORT clients shall connect to"
            )
        if self.session_timeout_s_min > self.session_timeout_s_max:
            raise UsageError(
                f"option session_timeout_s_min: given {self.session_timeout_s_min:g}, "
                f"allowed is at most session_timeout_s_max, which is {self.session_timeout_s_max:g}"
            )


@dataclass(frozen=True, slots=True)
class KafkaOptions(OptionGroup):
    """Which cluster a client talks to; librdkafka's own settings pass beside it, unread."""

    section: ClassVar[str] = "kafka"

    bootstrap: str = option("127.0.0.1:9092", "Addresses to find the cluster by: HOST:PORT, several with commas.")
