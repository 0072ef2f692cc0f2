"""The DataFrame steps, checked: what `transform`, `write_table`, `for_each_batch` and a `write` behind them are given.

A query reads the topic that the handlers' outputs went to, makes something of it, and puts it somewhere. It runs on
Spark only, and no handler ever runs because of it. Nothing here knows Spark: functions and names are kept for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from anabranch.core.errors import UsageError
from anabranch.pipeline.choices import checked_seconds
from anabranch.pipeline.handlers import inspect_frame_function, name_of
from anabranch.pipeline.names import check_name, unique_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

EVERY_S = 1.0
"""How often a query looks for new rows: a table gets a file per partition each time that there are some."""

EXACT_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text"})
"""Tables that are folders of files: each batch has files of its own, so that a repeated one replaces them."""

OutputMode = Literal["append", "update", "complete"]
_OUTPUT_MODES = ("append", "update", "complete")
_PATH = re.compile(r"[/\\]|\A\.")
_TABLE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,2}\Z", re.ASCII)
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TableSink:
    """Rows are appended to a table."""

    target: str
    format: str
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    """For the format's own writer, such as `compression`."""

    @property
    def is_path(self) -> bool:
        """Tell a folder from the name of a table."""
        return _PATH.search(self.target) is not None

    @property
    def label(self) -> str:
        """Return it as `explain` says it."""
        by = f", partitioned by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"{'folder' if self.is_path else 'table'} {self.target} as {self.format}{by}"


@dataclass(frozen=True, slots=True)
class TopicSink:
    """Rows become records of a topic."""

    topic: str

    @property
    def label(self) -> str:
        """Return it as `explain` says it."""
        return f"topic {self.topic}"


@dataclass(frozen=True, slots=True)
class BatchSink:
    """A function of the user's is called on the driver with each micro-batch."""

    function: Callable[..., Any]
    wants_batch_id: bool
    output_mode: OutputMode

    @property
    def label(self) -> str:
        """Return it as `explain` says it."""
        mode = "" if self.output_mode == "append" else f", output mode {self.output_mode}"
        return f"{name_of(self.function)} for each batch{mode}"


Sink = TableSink | TopicSink | BatchSink


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """One Structured Streaming query over the outputs of the last handler."""

    name: str
    """Unique in its pipeline; also the folder of its checkpoint."""
    step: str
    """The builder's word for it, as in `write_table`."""
    transforms: tuple[Callable[[Any], Any], ...]
    """From DataFrame to DataFrame, in this order."""
    sink: Sink
    every_s: float = EVERY_S

    @property
    def label(self) -> str:
        """Return it as `explain` says it."""
        return " → ".join([*(f"transform {name_of(each)}" for each in self.transforms), self.sink.label])


def table_sink(target: Any, table_format: Any, partition_by: Any, options: Mapping[str, Any] | None) -> TableSink:
    """Return a table to be appended to, or refuse it with a sentence."""
    text = str(target) if hasattr(target, "__fspath__") else target
    if hasattr(target, "__fspath__") and not _PATH.search(text):
        text = f"./{text}"  # Path("receipts") is a folder, "receipts" the name of a table
    if not isinstance(text, str) or not (_PATH.search(text) or _TABLE.match(text)):
        raise UsageError(
            f"write_table({target!r}): give a folder, as './receipts' or 's3a://lake/receipts', "
            "or a table's name, as 'db.receipts'"
        )
    if not isinstance(table_format, str) or not table_format:
        raise UsageError(f"write_table({text!r}): format={table_format!r}; name one, such as 'parquet' or 'delta'")
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by or ())
    if not all(isinstance(each, str) and each for each in columns):
        raise UsageError(f"write_table({text!r}): partition_by={partition_by!r}; give a column's name, or several")
    texts = tuple((name, str(value)) for name, value in (options or {}).items())
    return TableSink(text, table_format.lower(), columns, texts)


def batch_sink(function: Any, output_mode: Any) -> BatchSink:
    """Return a function for each micro-batch, or refuse it with a sentence."""
    count = inspect_frame_function(function, "for_each_batch", "frame", "batch_id")
    if output_mode not in _OUTPUT_MODES:
        allowed = " or ".join(map(repr, _OUTPUT_MODES))
        raise UsageError(f"for_each_batch: output_mode={output_mode!r} is not known; allowed is {allowed}")
    return BatchSink(function, count == 2, output_mode)


def checked_transform(function: Any) -> Callable[[Any], Any]:
    """Return a function from DataFrame to DataFrame, or refuse it with a sentence."""
    inspect_frame_function(function, "transform", "frame")
    checked: Callable[[Any], Any] = function
    return checked


def checked_every(every_s: Any, step: str) -> float:
    """Return how often a query looks for new rows."""
    given = checked_seconds(every_s, f"{step}: every_s")
    if given is None:
        raise UsageError(f"{step}: every_s=None; give a number of seconds above 0, or leave it out")
    return given


def query_name(given: str | None, sink: Sink, taken: Iterable[str]) -> str:
    """Return a query's name: the one given, which must be free, or one made from where its rows go."""
    names = frozenset(taken)
    if given is not None:
        name = check_name(given, "query name")
        if name in names:
            raise UsageError(f"query name {name!r}: another query has it; give each query a name of its own")
        return name
    return unique_name(_stem(sink), names, "query")


def _stem(sink: Sink) -> str:
    match sink:
        case TableSink(target=target):
            return _NOT_IN_A_NAME.sub("-", target.rstrip("/\\").replace("\\", "/").rpartition("/")[2])
        case TopicSink(topic=topic):
            return topic
        case BatchSink(function=function):
            return name_of(function)
