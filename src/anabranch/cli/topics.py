"""`anabranch topics`: list, create, delete."""

from __future__ import annotations

import json
import sys

from anabranch.cli.arguments import Parser, connection_of
from anabranch.cli.commands import Command, CommandGroup
from anabranch.cli.terminal import ask, note, plural, table
from anabranch.core.errors import UsageError

TOPICS = CommandGroup(
    name="anabranch topics",
    sentence="List, create and delete topics.",
    commands={
        "ls": Command("List topics with their partitions.", "anabranch.cli.topics:run_ls"),
        "create": Command("Create topics.", "anabranch.cli.topics:run_create"),
        "delete": Command("Delete topics and all their records.", "anabranch.cli.topics:run_delete"),
    },
    examples=(
        "anabranch topics ls",
        "anabranch topics create orders -p 8 -c retention.ms=3600000",
        "anabranch topics delete orders --yes",
    ),
)


def run(words: list[str]) -> int:
    """Run one of the commands."""
    return TOPICS.run(words)


def run_ls(words: list[str]) -> int:
    """List topics."""
    parser = Parser(
        "topics ls",
        "[OPTION]...",
        "List topics with their partitions. The cluster's own topics (__...) are left\nout unless asked for.",
        (
            "anabranch topics ls",
            "anabranch topics ls --json | jq -r .name",
            "anabranch topics ls -i -b broker.lan:9092",
        ),
    )
    parser.add_argument("-i", "--internal", action="store_true", help="Show the cluster's own topics too.")
    parser.add_argument("--json", action="store_true", help="One JSON object a line.")
    parser.add_client_options()
    typed = parser.read(words)

    from anabranch.kafka.admin import Admin

    topics = [each for each in Admin(connection_of(typed)).topics() if typed.internal or not each.internal]
    if typed.json:
        for each in topics:
            line = {"name": each.name, "partitions": each.partitions, "replicas": each.replicas}
            sys.stdout.write(json.dumps(line) + "\n")
    elif topics:
        rows = [(each.name, str(each.partitions), str(each.replicas)) for each in topics]
        sys.stdout.write(table(("NAME", "PARTITIONS", "REPLICAS"), rows))
    else:
        note("no topics yet: create one with `anabranch topics create NAME`")
    return 0


def run_create(words: list[str]) -> int:
    """Create topics."""
    parser = Parser(
        "topics create",
        "NAME... [OPTION]...",
        "Create topics. What is not said is the broker's default.",
        (
            "anabranch topics create orders",
            "anabranch topics create orders payments -p 8",
            "anabranch topics create audit -p 1 -c retention.ms=-1 -c max.message.bytes=2000000",
        ),
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="Name of a topic.")
    parser.add_argument("-p", "--partitions", metavar="N", type=int, help="Partitions. [the broker's default]")
    parser.add_argument(
        "-c", "--topic-config", metavar="NAME=VALUE", action="append", default=[], help="A topic config; repeatable."
    )
    parser.add_client_options()
    typed = parser.read(words)
    if typed.partitions is not None and typed.partitions < 1:
        raise UsageError(f"--partitions: given {typed.partitions}, allowed is a whole number from 1")
    config = dict(_config(word) for word in typed.topic_config)

    from anabranch.kafka.admin import Admin

    Admin(connection_of(typed)).create(typed.names, typed.partitions, config)
    sys.stdout.write("".join(f"created {name}\n" for name in typed.names))
    return 0


def run_delete(words: list[str]) -> int:
    """Delete topics."""
    parser = Parser(
        "topics delete",
        "NAME... [OPTION]...",
        "Delete topics and all their records. Asks first when run on a terminal.",
        ("anabranch topics delete orders", "anabranch topics delete orders payments --yes"),
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="Name of a topic.")
    parser.add_argument("-y", "--yes", action="store_true", help="Do not ask.")
    parser.add_client_options()
    typed = parser.read(words)

    from anabranch.kafka.admin import Admin

    admin = Admin(connection_of(typed))
    question = f"Delete {plural(len(typed.names), 'topic')} ({', '.join(typed.names)}) with all records?"
    if not typed.yes and sys.stdin.isatty() and not ask(question):
        note("nothing deleted")
        return 0
    admin.delete(typed.names)
    sys.stdout.write("".join(f"deleted {name}\n" for name in typed.names))
    return 0


def _config(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise UsageError(f"--topic-config: given {word!r}, allowed is NAME=VALUE, as in retention.ms=3600000")
    return name, value
