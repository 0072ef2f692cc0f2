"""`anabranch lag`: how far a group is behind, in records and in seconds, partition by partition.

True lag counts from what is settled (committable), which only the running process knows; where no process answers on
its status socket, it counts from what is committed. Seconds are the age of the first record that is not done.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from anabranch.cli.arguments import Parser, connection_of
from anabranch.cli.config import suggestion
from anabranch.cli.status import age_text, parse_status
from anabranch.cli.status_sockets import ask_processes, state_folder
from anabranch.cli.terminal import note, plural, table
from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from anabranch.cli.status import PartitionStatus, Status
    from anabranch.kafka.admin import Admin
    from anabranch.kafka.groups import GroupDescription, PartitionName

WATCH_S = 2.0

EXAMPLES = (
    "anabranch lag billing",
    "anabranch lag billing --topic orders --watch",
    "anabranch lag billing --json | jq .lag",
)


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far behind a group is in one partition; None is what is not known."""

    topic: str
    partition: int
    committed: int | None
    committable: int | None
    """From the running process; None when none answers."""
    log_end: int | None
    lag: int | None
    lag_s: float | None
    member: str | None
    client: str | None
    """The member's client id, which says more to people than its own."""

    @property
    def next_offset(self) -> int | None:
        """Return the position that the lag counts from."""
        return self.committed if self.committable is None else self.committable


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far behind a group is."""

    group: str
    state: str
    members: int
    processes: int
    """Processes that answered on a status socket."""
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int:
        """Return the lag of all partitions together, of those where it is known."""
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def lag_s(self) -> float | None:
        """Return the lag of the partition that is furthest behind in time."""
        return max((each.lag_s for each in self.partitions if each.lag_s is not None), default=None)


def run(words: list[str]) -> int:
    """Print the lag once, or again and again."""
    typed = _parser().read(words)
    folder = state_folder(typed)

    from anabranch.kafka.admin import Admin

    admin = Admin(connection_of(typed))
    try:
        while True:
            found = measure(admin, typed.group, folder, typed.topic)
            text = as_json(found) if typed.json else as_text(found)
            if typed.watch and not typed.json and sys.stdout.isatty():
                text = f"\033[H\033[2J{text}"  # home, then clear: the table stands still
            sys.stdout.write(text)
            sys.stdout.flush()
            if not typed.watch:
                return 0
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        if typed.watch:
            return 0  # the way to end it
        raise


def measure(admin: Admin, group: str, folder: Path, topics: Sequence[str] = ()) -> GroupLag:
    """Ask the cluster and the running processes; raise UsageError for a group or topic that is not there."""
    from anabranch.kafka.group_progress import timestamps_at
    from anabranch.kafka.groups import describe_group

    answers, silent = ask_processes(folder)
    for sentence in silent:
        note(sentence)
    statuses = [parse_status(answer) for answer in answers]
    description = describe_group(admin, group)
    _refuse_unknown_topics(group, topics, {each.topic for each in description.positions})
    lag = joined(description, statuses, topics)
    told = told_timestamps(statuses)
    asked = {
        (each.topic, each.partition): each.next_offset
        for each in lag.partitions
        if each.lag and each.next_offset is not None and (each.topic, each.partition) not in told
    }
    return with_ages(lag, {**told, **timestamps_at(admin, asked)}, time.time())


def joined(description: GroupDescription, statuses: Iterable[Status], topics: Sequence[str] = ()) -> GroupLag:
    """Join what the cluster knows with what the processes know."""
    known = list(statuses)
    running: dict[PartitionName, PartitionStatus] = {
        (each.topic, each.partition): each for status in known for each in status.partitions
    }
    clients = {each.name: each.client for each in description.members}
    rows = []
    for each in description.positions:
        if topics and each.topic not in topics:
            continue
        own = running.get((each.topic, each.partition))
        committable = own.committable if own is not None else None
        if committable is not None:
            committable = max(committable, each.committed or 0)  # the cluster was asked a moment later
        begin = each.committed if committable is None else committable
        lag = None if begin is None or each.log_end is None else max(0, each.log_end - begin)
        client = clients.get(each.member or "")
        place = each.topic, each.partition
        rows.append(PartitionLag(*place, each.committed, committable, each.log_end, lag, None, each.member, client))
    return GroupLag(description.name, description.state, len(description.members), len(known), tuple(rows))


def told_timestamps(statuses: Iterable[Status]) -> dict[PartitionName, int]:
    """Return the timestamps in milliseconds of the records at committable that the processes hold."""
    return {
        (each.topic, each.partition): each.blocker_timestamp_ms
        for status in statuses
        for each in status.partitions
        if each.blocker_timestamp_ms is not None and each.blocker_timestamp_ms >= 0
    }


def with_ages(lag: GroupLag, timestamps_ms: Mapping[PartitionName, int], now_s: float) -> GroupLag:
    """Return the lag with seconds: 0 where nothing is left, the age of the next record where it is known."""
    from dataclasses import replace

    def aged(each: PartitionLag) -> PartitionLag:
        if each.lag == 0:
            return replace(each, lag_s=0.0)
        timestamp_ms = timestamps_ms.get((each.topic, each.partition))
        return each if timestamp_ms is None else replace(each, lag_s=max(0.0, now_s - timestamp_ms / 1000))

    return replace(lag, partitions=tuple(map(aged, lag.partitions)))


def as_text(lag: GroupLag) -> str:
    """Return a sentence and a table with totals."""
    head = f"group {lag.group}: {lag.state}, {plural(lag.members, 'member')}, lag {plural(lag.lag, 'record')}"
    if lag.lag_s is not None:
        head += f", the oldest {age_text(lag.lag_s)} old" if lag.lag else ""
    source = (
        f"true lag, from {plural(lag.processes, 'running process').replace('processs', 'processes')}"
        if lag.processes
        else "lag from what is committed: no process answers here (--state-dir says where to look)"
    )
    rows = [
        (each.topic, str(each.partition), _number(each.committed), _number(each.committable), _number(each.log_end),
         _number(each.lag), _age(each.lag_s), each.client or "-")
        for each in lag.partitions
    ]  # fmt: skip
    columns = ("TOPIC", "PARTITION", "COMMITTED", "COMMITTABLE", "LOG-END", "LAG", "BEHIND", "CLIENT")
    if len(rows) > 1:
        rows.append(("total", "-", "-", "-", "-", str(lag.lag), _age(lag.lag_s), "-"))
    if not lag.processes:  # nobody knows it: the column would be empty
        columns, rows = _without(columns, 3), [_without(row, 3) for row in rows]
    return f"{head}\n({source})\n\n{table(columns, rows)}"


def as_json(lag: GroupLag) -> str:
    """Return all of it as one line."""
    shown: dict[str, Any] = {**asdict(lag), "lag": lag.lag, "lag_s": lag.lag_s}
    return json.dumps(shown) + "\n"


def _refuse_unknown_topics(group: str, topics: Sequence[str], known: set[str]) -> None:
    for topic in topics:
        if topic not in known:
            raise UsageError(f"group {group} does not read {topic!r}{suggestion(topic, sorted(known))}")


def _without(row: Sequence[str], index: int) -> Any:
    return (*row[:index], *row[index + 1 :])


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else age_text(seconds)


def _parser() -> Parser:
    parser = Parser(
        "lag",
        "GROUP [OPTION]...",
        "Show how far a group is behind: for each partition the committed position, the\n"
        "log end, the records between what is settled and the log end (true lag, when a\n"
        "process of the group runs here) and the age of the first record not done.",
        EXAMPLES,
    )
    parser.add_argument("group", metavar="GROUP", help="Name of the group: the pipeline's name.")
    parser.add_argument(
        "-t", "--topic", metavar="TOPIC", action="append", default=[], help="Only this topic; repeatable."
    )
    parser.add_argument("--json", action="store_true", help="One JSON object.")
    parser.add_argument("-w", "--watch", action="store_true", help="Again every two seconds, until Ctrl-C.")
    parser.add_argument(
        "--state-dir", metavar="DIR", help="Where the group's processes have their sockets. [.anabranch/GROUP]"
    )
    parser.add_client_options()
    return parser
