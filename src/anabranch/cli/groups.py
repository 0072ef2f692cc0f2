"""`anabranch groups`: list consumer groups, describe one."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from anabranch.cli.arguments import Parser, connection_of
from anabranch.cli.commands import Command, CommandGroup
from anabranch.cli.terminal import note, table

if TYPE_CHECKING:
    from anabranch.kafka.groups import GroupDescription

GROUPS = CommandGroup(
    name="anabranch groups",
    sentence="List consumer groups; show members, positions and lag of one.",
    commands={
        "ls": Command("List groups with their state.", "anabranch.cli.groups:run_ls"),
        "describe": Command("Show a group's members, positions and lag.", "anabranch.cli.groups:run_describe"),
    },
    examples=("anabranch groups ls", "anabranch groups describe billing"),
)


def run(words: list[str]) -> int:
    """Run one of the commands."""
    return GROUPS.run(words)


def run_ls(words: list[str]) -> int:
    """List groups."""
    parser = Parser(
        "groups ls",
        "[OPTION]...",
        "List consumer groups with their state.",
        ("anabranch groups ls", "anabranch groups ls --json | jq -r .name"),
    )
    parser.add_argument("--json", action="store_true", help="One JSON object a line.")
    parser.add_client_options()
    typed = parser.read(words)

    from anabranch.kafka.admin import Admin
    from anabranch.kafka.groups import list_groups

    groups = list_groups(Admin(connection_of(typed)))
    if typed.json:
        sys.stdout.write("".join(json.dumps(asdict(each)) + "\n" for each in groups))
    elif groups:
        rows = [(each.name, each.state, each.protocol) for each in groups]
        sys.stdout.write(table(("NAME", "STATE", "PROTOCOL"), rows))
    else:
        note("no groups yet: `anabranch consume TOPIC -g GROUP` makes one")
    return 0


def run_describe(words: list[str]) -> int:
    """Describe a group."""
    parser = Parser(
        "groups describe",
        "GROUP [OPTION]...",
        "Show a group: its state, its members with what they read, and for each\n"
        "partition the committed position, the log end and the lag between them.",
        ("anabranch groups describe billing", "anabranch groups describe billing --json | jq .lag"),
    )
    parser.add_argument("group", metavar="GROUP", help="Name of the group.")
    parser.add_argument("--json", action="store_true", help="One JSON object.")
    parser.add_client_options()
    typed = parser.read(words)

    from anabranch.kafka.admin import Admin
    from anabranch.kafka.groups import describe_group

    group = describe_group(Admin(connection_of(typed)), typed.group)
    sys.stdout.write(as_json(group) if typed.json else as_text(group))
    return 0


def lag_of(group: GroupDescription) -> int:
    """Return the lag of all partitions together, of those where it is known."""
    return sum(each.lag or 0 for each in group.positions)


def as_json(group: GroupDescription) -> str:
    """Return the whole description as one line."""
    shown = asdict(group)
    shown["lag"] = lag_of(group)
    for position, each in zip(shown["positions"], group.positions, strict=True):
        position["lag"] = each.lag
    return json.dumps(shown) + "\n"


def as_text(group: GroupDescription) -> str:
    """Return a head and two tables: members, then partitions."""
    head = [
        ("group", group.name),
        ("state", group.state),
        ("assignor", group.assignor),
        ("coordinator", group.coordinator),
        ("members", str(len(group.members))),
        ("lag", str(lag_of(group))),
    ]
    parts = ["".join(f"{name:<12} {value}\n" for name, value in head)]
    if group.members:
        rows = [
            (each.name, each.instance or "-", each.client, each.host, _partitions(each.partitions))
            for each in group.members
        ]
        parts.append(table(("MEMBER", "INSTANCE", "CLIENT", "HOST", "READS"), rows))
    if group.positions:
        rows_positions = [
            (each.topic, str(each.partition), _number(each.committed), _number(each.log_end), _number(each.lag),
             each.member or "-")
            for each in group.positions
        ]  # fmt: skip
        parts.append(table(("TOPIC", "PARTITION", "COMMITTED", "LOG-END", "LAG", "MEMBER"), rows_positions))
    return "\n".join(parts)


def _partitions(partitions: tuple[tuple[str, int], ...]) -> str:
    """Return `orders/0,1,2 payments/4`."""
    by_topic: dict[str, list[str]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}/{','.join(numbers)}" for topic, numbers in by_topic.items()) or "-"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
