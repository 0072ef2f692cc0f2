"""The options of a run: those of `anabranch run`, of section [run], and of `Pipeline.run` and `start`, by one table.

Which cluster is meant stands in `KafkaOptions` (section [kafka], `--bootstrap`): it is the same for every command.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final

from anabranch.core.errors import UsageError
from anabranch.core.options import OptionGroup, option

ENGINES: Final = ("spark", "async", "threads", "processes", "inline")
"""Every engine there will be; the ones of the runtime are a part of them."""

UNTIL_END: Final = "end"
LOST_CHOICES: Final = ("go on", "halt")
BEYOND_CHOICES: Final = ("halt", "log_end", "log_start")


@dataclass(frozen=True, slots=True)
class RunOptions(OptionGroup):
    """How one process runs a pipeline."""

    section: ClassVar[str] = "run"

    engine: str = option("spark", "What runs the handlers.", choices=ENGINES)
    master: str | None = option(
        None,
        "On Spark: the master, as in spark://host:7077; when not given, this machine, or the session that is there.",
    )
    members: int = option(
        0, "On Spark: processes that share the partitions; 0 is one for each, at most one a core.", low=0, high=10_000
    )
    until: str | None = option(
        None, "Where to stop: `end` (what is in the topics at the start) or a time such as 2026-07-01T12:00:00Z."
    )
    state_dir: str | None = option(
        None, "Folder of this run's own files, the status socket among them; .anabranch/GROUP when not given."
    )
    drain_s: float = option(30.0, "Time that begun calls have to end after a signal or stop().", low=0, high=86_400)
    grace_s: float = option(
        5.0, "Time that begun calls of a partition have to end when it moves to another member.", low=0, high=3600
    )
    session_timeout_s: float = option(
        10.0, "Silence after which the group takes this member for dead.", low=0.5, high=1800
    )
    reach_s: float = option(10.0, "Time that a start waits for a broker that does not answer yet.", low=0, high=86_400)
    on_lost_to_retention: str = option(
        "go on", "What to do when retention removed records unread; they are counted either way.", choices=LOST_CHOICES
    )
    on_beyond_end: str = option(
        "halt",
        "What to do when a committed position lies beyond the end of its log, which was cut or made anew.",
        choices=BEYOND_CHOICES,
    )
    log_level: str = option(
        "info", "Least important log line that is written.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = option("text", "Shape of a log line on stderr.", choices=("text", "json"))

    def check_together(self) -> None:
        """Check that `until` can be understood."""
        if self.until is not None:
            parse_until(self.until)


def parse_until(text: str) -> str | datetime:
    """Return `end`, or the time that the text spells; a time without a zone is UTC."""
    if text == UNTIL_END:
        return UNTIL_END
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"option until: given {text!r}, allowed is end, or a time such as 2026-07-01T12:00:00Z"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
