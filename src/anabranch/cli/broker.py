"""`anabranch broker`: flags, environment and file into options, logging set up, then the broker."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from anabranch.cli.arguments import Parser
from anabranch.cli.config import Setting, read_file, resolve
from anabranch.core.options import BrokerOptions, options_of

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = (
    "anabranch broker                            listens on 127.0.0.1:9092",
    "anabranch broker --listen 127.0.0.1:0       takes a free port and prints it",
    "anabranch broker --data-dir /tmp/x --flush os    for tests: fast, forgetful",
    "anabranch broker --listen 0.0.0.0:9092 --advertise broker.lan:9092",
    "ANABRANCH_BROKER_RETENTION_S=3600 anabranch broker --print-config",
)


def run(words: list[str]) -> int:
    """Run the broker until it is told to stop; with --print-config only say what would be in force."""
    typed = _parser().read(words)
    table = options_of(BrokerOptions)
    flags = {each.name: getattr(typed, each.name) for each in table}
    resolved = resolve(BrokerOptions, flags, os.environ, read_file(typed.config))
    if typed.print_config:
        sys.stdout.write(as_json(resolved.settings) if typed.json else as_text(resolved.settings))
        return 0
    return _serve(resolved.options)


def as_text(settings: Sequence[Setting]) -> str:
    """Return aligned lines `name = value  source`."""
    names = max(len(each.option.name) for each in settings)
    values = max(len(_spelled(each)) for each in settings)
    return "".join(f"{each.option.name:<{names}} = {_spelled(each):<{values}}  {each.source}\n" for each in settings)


def as_json(settings: Sequence[Setting]) -> str:
    """Return one object: name to value and source."""
    import json

    shown = {each.option.name: {"value": each.value, "source": each.source} for each in settings}
    return json.dumps(shown, indent=2) + "\n"


def _serve(options: BrokerOptions) -> int:
    from anabranch.broker.main import serve
    from anabranch.cli.log_lines import set_up_logging

    set_up_logging(options.log_level, options.log_format)
    return serve(options)


def _spelled(each: Setting) -> str:
    return each.option.spell(each.value) or "none"


def _parser() -> Parser:
    parser = Parser(
        "broker",
        "[OPTION]...",
        "Run a broker that any Kafka client can use. It prints `listening on HOST:PORT`\n"
        "when it is ready and stops cleanly at SIGTERM and Ctrl-C.\n\n"
        "Each option can also be set in the environment (--data-dir is\n"
        "ANABRANCH_BROKER_DATA_DIR) or in a file (data_dir under [broker] in\n"
        "anabranch.toml); a flag wins over the environment, the environment over the\n"
        "file. Defaults are in brackets.",
        EXAMPLES,
    )
    parser.add_table(options_of(BrokerOptions))
    parser.add_argument("--config", metavar="FILE", help="Configuration file. [./anabranch.toml if it is there]")
    parser.add_argument(
        "--print-config", action="store_true", help="Print every option in force with its source, and exit."
    )
    parser.add_argument("--json", action="store_true", help="With --print-config: as JSON.")
    return parser
