"""`anabranch why`: why is a group not committing?

The processes of the group know best: each that runs here is asked on its status socket. What is left (members on other
machines, a group that does not run) is told from the cluster: state, members, lag, and the metadata of the commits,
in which a carryover says how many records are settled beyond the one that holds the position back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from anabranch.cli.arguments import Parser, connection_of
from anabranch.cli.status import OLD_S, age_text, parse_status
from anabranch.cli.status_sockets import ask_processes, state_folder
from anabranch.cli.terminal import plural
from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from anabranch.cli.status import Status
    from anabranch.kafka.client import Connection
    from anabranch.kafka.groups import GroupDescription, Member, PartitionName, Position

PARTITIONS_TOLD_MAX = 20
HELD_MAX = 3
HELD_S = 1.0  # a record that has been on its way for longer is worth naming

EXAMPLES = (
    "anabranch why billing",
    "anabranch why billing --state-dir /var/lib/billing",
    "anabranch why billing -b broker.lan:9092",
)


def run(words: list[str]) -> int:
    """Answer in sentences."""
    typed = _parser().read(words)
    folder = state_folder(typed)
    answers, silent = ask_processes(folder)
    statuses = [parse_status(answer) for answer in answers]
    here = [*told_by_processes(statuses), *silent]
    connection = connection_of(typed)
    if here:
        sys.stdout.write("".join(f"{line}\n" for line in here))
        sys.stdout.flush()
        answered = sum(max(1, len(answer.get("members", ()))) for answer in answers)  # a Spark driver answers for all
        lines = _told_of_others(connection, typed.group, answered + len(silent))
    else:
        lines = _told_by_cluster(connection, typed.group, folder)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def told_by_processes(statuses: Sequence[Status]) -> list[str]:
    """Return what the running processes say, each under its name when there are several."""
    lines: list[str] = []
    for status in statuses:
        sentences = [_headline(status), *status.why]
        if len(statuses) > 1:
            lines.append(f"process {status.pid} ({status.member}):")
            sentences = [f"  {sentence}" for sentence in sentences]
        lines += sentences
    return lines


def _headline(status: Status) -> str:
    """Return the answer in one sentence; the process's own sentences, one or more for each partition, follow."""
    if status.unreachable_s >= OLD_S:
        return f"No broker answers for {age_text(status.unreachable_s)}: {status.unreachable_error}."
    if status.breakers_open:
        steps = ", ".join(map(repr, status.breakers_open))
        return f"Step {steps} is not called: too many calls failed, its breaker is open until a probe succeeds."
    if not status.partitions:
        return f"It has no partition: it is joining group {status.group}, or the other members have them all."
    held = [each for each in status.partitions if each.blocker is not None and each.blocker_age_s >= HELD_S]
    if not held:
        return f"Nothing has held {status.group} back for more than {HELD_S:g} s."
    held.sort(key=lambda each: -each.blocker_age_s)
    named = [f"{each.name} at offset {each.blocker} for {age_text(each.blocker_age_s)}" for each in held]
    more = f" and {plural(len(named) - HELD_MAX, 'more partition')}" if len(named) > HELD_MAX else ""
    rest = len(status.partitions) - len(held)
    others = f"; the other {rest:,} partitions go on" if rest > 1 else "; the other partition goes on" if rest else ""
    return f"Held back: {', '.join(named[:HELD_MAX])}{more}{others}."


def told_by_commits(
    group: GroupDescription, metadata: Mapping[PartitionName, str], topic_ids: Mapping[str, str]
) -> list[str]:
    """Return what can be said of a group that no process answers for."""
    lines = [_state_sentence(group)]
    behind = sorted((each for each in group.positions if each.lag), key=lambda each: -(each.lag or 0))
    for each in behind[:PARTITIONS_TOLD_MAX]:
        stored = metadata.get((each.topic, each.partition), "")
        lines.append(_behind_sentence(each, stored, topic_ids.get(each.topic, "")))
    if len(behind) > PARTITIONS_TOLD_MAX:
        lines.append(f"{plural(len(behind) - PARTITIONS_TOLD_MAX, 'more partition')} behind, each by less.")
    lines += [_unknown_sentence(each) for each in group.positions if each.lag is None][:PARTITIONS_TOLD_MAX]
    done = sum(each.lag == 0 for each in group.positions)
    if done:
        lines.append(f"{plural(done, 'partition')} committed to the end: nothing is left there.")
    if not group.positions:
        lines.append("It has committed nothing, and no partition is assigned to a member.")
    return lines


def _told_of_others(connection: Connection, name: str, answered: int) -> list[str]:
    """Return what the cluster adds to the answers of the processes here; they stand also when it cannot be asked."""
    from anabranch.kafka.admin import Admin
    from anabranch.kafka.errors import UnreachableError
    from anabranch.kafka.groups import describe_group

    try:
        group = describe_group(Admin(connection), name)
    except (UnreachableError, UsageError) as error:
        return [f"The cluster was not asked about members elsewhere: {error}"]
    others = len(group.members) - answered
    if others <= 0:
        return []
    return [f"{plural(others, 'more member')} of the group did not answer here{_elsewhere(group.members)}."]


def _told_by_cluster(connection: Connection, name: str, folder: Path) -> list[str]:
    from anabranch.kafka.admin import Admin
    from anabranch.kafka.group_progress import commit_metadata, topic_ids
    from anabranch.kafka.groups import describe_group

    admin = Admin(connection)
    group = describe_group(admin, name)
    head = f"No process of group {name} answers in {folder}; this is what the cluster knows."
    ids = topic_ids(admin, {each.topic for each in group.positions})
    return [head, *told_by_commits(group, commit_metadata(admin, name), ids)]


def _state_sentence(group: GroupDescription) -> str:
    if not group.members:
        return (
            f"Nobody reads for group {group.name}: it has no members, so nothing is handled or committed; "
            f"start it with `anabranch run MODULE:PIPELINE`."
        )
    members = plural(len(group.members), "member")
    if group.state != "stable":
        return f"Group {group.name} is rebalancing ({group.state}) with {members}: commits go on when it is stable."
    return (
        f"Group {group.name} is stable with {members}{_elsewhere(group.members)}; to hear their side, run this where "
        "they were started, or name their folder with --state-dir."
    )


def _elsewhere(members: Iterable[Member]) -> str:
    hosts = sorted({each.host.removeprefix("/") for each in members if each.host})
    return f" (hosts {', '.join(hosts[:5])}{', ...' if len(hosts) > 5 else ''})" if hosts else ""


def _behind_sentence(each: Position, metadata: str, topic_id: str) -> str:
    from anabranch.control.carryover import decode

    committed, log_end = each.committed or 0, each.log_end or 0
    text = f"{each.topic}/{each.partition}: committed up to {committed}, {plural(each.lag or 0, 'offset')} to go"
    carried = decode(metadata, topic_id=topic_id, position=committed, log_start=0, log_end=log_end)
    if not carried:
        return f"{text}."
    verb = "is" if carried.settled == 1 else "are"
    return (
        f"{text}; {plural(carried.settled, 'record')} of them {verb} settled already, the last at {carried.end - 1}: "
        f"the record at {committed} holds the position back. Look at it with "
        f"`anabranch consume {each.topic} -p {each.partition} -o {committed} -c 1`."
    )


def _unknown_sentence(each: Position) -> str:
    where = f"{each.topic}/{each.partition}"
    if each.log_end is None:
        return f"{where}: does not exist any more; {each.committed} was committed."
    return f"{where}: nothing is committed yet, the log ends at {each.log_end}."


def _parser() -> Parser:
    parser = Parser(
        "why",
        "GROUP [OPTION]...",
        "Say why a group is not committing: what holds its position back, since when,\n"
        "and what to do. Asks the processes of the group that run here, and the cluster.",
        EXAMPLES,
    )
    parser.add_argument("group", metavar="GROUP", help="Name of the group: the pipeline's name.")
    parser.add_argument(
        "--state-dir", metavar="DIR", help="Where the group's processes have their sockets. [.anabranch/GROUP]"
    )
    parser.add_client_options()
    return parser
