"""Flags: argparse, taught to explain itself, and filled from the option table.

Typer would read better for a handful of typed functions, but its import (about 90 ms where argparse takes 8) is a fifth
of the half second that a broker may take to start, and flags that come from a table are no functions. So all commands
use the standard library's parser; one way is enough.
"""

from __future__ import annotations

import argparse
import os
import shutil
from typing import TYPE_CHECKING, NoReturn

from anabranch.cli.config import read_file, suggestion
from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anabranch.core.options import Option
    from anabranch.kafka.client import Connection


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keep our line breaks in description and examples, and give flags a column that fits them."""

    def __init__(self, prog: str) -> None:
        """Use the terminal's width within what can be read."""
        width = max(72, min(shutil.get_terminal_size().columns, 110))
        super().__init__(prog, max_help_position=34, width=width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Name the value once, as in `-b, --bootstrap HOST:PORT`."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar or ''}".rstrip()


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ours, and whose help ends with examples."""

    def __init__(self, command: str, usage: str, sentence: str, examples: Sequence[str]) -> None:
        """Make the parser of `anabranch COMMAND`."""
        super().__init__(
            prog=f"anabranch {command}",
            usage=f"anabranch {command} {usage}",
            description=sentence,
            epilog="\n".join(["examples:", *(f"  {line}" for line in examples)]),
            formatter_class=HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self._positionals.title = "arguments"
        self.add_argument("-h", "--help", action="help", help="Show this text and exit.")

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting, so that there is one place where errors are printed."""
        raise UsageError(f"{message}; `{self.prog} --help` explains")

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Return what was typed; arguments and flags may be mixed."""
        namespace, rest = self.parse_known_intermixed_args(words)
        for word in rest:
            if word.startswith("-") and word != "-":
                flag = word.partition("=")[0]
                self.error(f"unknown option {flag}{suggestion(flag, self._option_string_actions)}")
            self.error(f"unexpected argument {word!r}")
        return namespace

    def add_table(self, table: Iterable[Option]) -> None:
        """Add a flag for each option; absent flags are None, so that the next source is asked."""
        for each in table:
            text = f"{each.rule.sentence} [{each.spell(each.default) or 'none'}]".replace("%", "%%")
            if each.kind is bool:
                self.add_argument(each.flag, dest=each.name, action=argparse.BooleanOptionalAction, help=text)
            else:
                self.add_argument(each.flag, dest=each.name, metavar=_metavar(each), help=text)

    def add_client_options(self) -> None:
        """Add the flags that all commands that talk to a cluster share."""
        cluster = self.add_argument_group("cluster")
        cluster.add_argument(
            "-b", "--bootstrap", metavar="HOST:PORT", help="Where to find the cluster. [127.0.0.1:9092]"
        )
        cluster.add_argument(
            "-X", "--kafka", metavar="NAME=VALUE", action="append", default=[],
            help="A setting for librdkafka, as in security.protocol=SSL; repeatable.",
        )  # fmt: skip
        cluster.add_argument("--config", metavar="FILE", help="Configuration file. [./anabranch.toml if it is there]")
        cluster.add_argument("-v", "--verbose", action="store_true", help="Show librdkafka's log lines on stderr.")


def connection_of(namespace: argparse.Namespace) -> Connection:
    """Return how to reach the cluster: flags, environment, [kafka] of the file, defaults."""
    from anabranch.cli.config import kafka_settings, kafka_sources, resolve
    from anabranch.core.options import KafkaOptions
    from anabranch.kafka.client import Connection

    if namespace.verbose:
        from anabranch.cli.log_lines import set_up_logging

        set_up_logging("debug", "text")
    file = read_file(namespace.config)
    resolved = resolve(KafkaOptions, {"bootstrap": namespace.bootstrap}, os.environ, file)
    return Connection(
        resolved.options.bootstrap, kafka_settings(file, namespace.kafka), kafka_sources(file, namespace.kafka)
    )


def _metavar(each: Option) -> str:
    if each.rule.choices:
        return "|".join(each.rule.choices)
    if each.rule.port_min is not None:
        return "HOST:PORT"
    if each.kind is str:
        return "DIR" if each.name.endswith("_dir") else "TEXT"
    return "SECONDS" if "_s" in each.name[-6:] and each.kind is float else "N"
