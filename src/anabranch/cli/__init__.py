"""The command line: one file per command, loaded when it is called.

Here are the entry point, the table of commands, and what becomes of errors: an error of ours is one line on stderr and
an exit code (0 done, 1 internal, 2 usage, 3 broker unreachable, 4 halted, refused by the cluster, or failed in a
handler, 5 drain incomplete, 130 forced); notes on it (the user's own traceback) stand before it; anything else is a bug
and keeps its traceback; a reader that goes away (`| head`) ends the command quietly.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from anabranch.cli.commands import Command, CommandGroup
from anabranch.core.errors import AnabranchError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_FORCED = 130

ANABRANCH = CommandGroup(
    name="anabranch",
    sentence="Run pipelines over Kafka topics; a Kafka that pip installs; tools to look into any Kafka.",
    commands={
        "run": Command("Run a pipeline of yours.", "anabranch.cli.run:run"),
        "lag": Command("Show how far a group is behind, in records and seconds.", "anabranch.cli.lag:run"),
        "why": Command("Say why a group is not committing.", "anabranch.cli.why:run"),
        "broker": Command("Run a broker that any Kafka client can use.", "anabranch.cli.broker:run"),
        "topics": Command("List, create and delete topics.", "anabranch.cli.topics:run"),
        "groups": Command("List consumer groups; show members, positions and lag of one.", "anabranch.cli.groups:run"),
        "produce": Command("Write lines from stdin or files to a topic.", "anabranch.cli.produce:run"),
        "consume": Command("Print the records of topics.", "anabranch.cli.consume:run"),
    },
    examples=(
        "anabranch run app:billing --engine async           `billing` of app.py in this folder",
        "anabranch broker                                   a broker on 127.0.0.1:9092",
        "anabranch topics create orders -p 8                a topic with 8 partitions",
        "echo alice:hello | anabranch produce orders -K :   a record with a key",
        "anabranch consume orders -e                        all records, then exit",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _version() if words[:1] == ["--version"] else ANABRANCH.run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The interpreter flushes stdout once more at exit; what is left goes nowhere instead of complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return EXIT_FORCED
    except AnabranchError as error:
        for text in getattr(error, "__notes__", ()):
            sys.stderr.write(f"{text}\n")
        sys.stderr.write(f"anabranch: error: {' '.join(str(error).split())}\n")
        return exit_code(error)


def exit_code(error: AnabranchError) -> int:
    """Return the exit code for an error of our tree: the one that a run which it ended has."""
    from anabranch.runtime.result import Result

    return int(Result.of_error(error).exit_code)


def _version() -> int:
    from importlib.metadata import version

    sys.stdout.write(f"anabranch {version('anabranch')}\n")
    return 0
