"""The command line without a cluster: help, errors, exit codes, imports, log lines."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from anabranch.cli import exit_code, main
from anabranch.cli.log_lines import JsonLines, TextLines
from anabranch.cli.terminal import byte_text, plural, table
from anabranch.core.errors import AnabranchError, Halted, HandlerError, InternalError, PeerError, UsageError
from anabranch.kafka.errors import UnreachableError
from anabranch.runtime.result import Result

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = [
    ["broker"],
    ["topics", "ls"],
    ["topics", "create"],
    ["topics", "delete"],
    ["groups", "ls"],
    ["groups", "describe"],
    ["produce"],
    ["consume"],
]


@pytest.mark.parametrize("words", [[], ["topics"], ["groups"], *COMMANDS], ids=" ".join)
def test_every_help_teaches(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each help says how to call the command, what it does, and shows at least two examples that fit a terminal."""
    try:
        code = main([*words, "--help"])
    except SystemExit as leaving:  # how argparse ends after its help
        code = int(leaving.code or 0)
    text = capsys.readouterr().out
    assert code == 0
    assert text.startswith(f"usage: {' '.join(['anabranch', *words])}")
    examples = text.split("examples:\n")[1].splitlines()
    assert sum(line.startswith("  ") and "anabranch" in line for line in examples) >= 2
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["brokr"], "unknown command 'brokr'; did you mean broker?"),
        (["topics", "list"], "unknown command 'list'"),
        (["broker", "--data-dri", "x"], "unknown option --data-dri; did you mean --data-dir?"),
        (["broker", "extra"], "unexpected argument 'extra'"),
        (["broker", "--segment-bytes", "1"], "option segment_bytes: given 1, allowed is"),
        (["topics", "create"], "NAME"),
        (["topics", "create", "t", "-p", "0"], "--partitions: given 0"),
        (["topics", "create", "t", "-c", "x"], "NAME=VALUE"),
        (["consume", "t", "-o", "noon"], "start 'noon'"),
        (["consume", "t", "-g", "g", "-p", "0"], "-g and -p exclude each other"),
        (["consume", "t", "-o", "stored"], "name one with -g GROUP"),
        (["consume", "t", "-c", "0"], "--count: given 0"),
        (["consume", "t", "-f", "%q"], "unknown '%q'"),
        (["produce", "t", "no-such-file"], "no file no-such-file"),
        (["produce", "t", "-K", ""], "the delimiter is empty"),
        (["produce", "t", "--kafka", "x"], "NAME=VALUE"),
        (["produce", "t", "-X", "no.such=1"], "kafka setting no.such (given in --kafka): No such configuration"),
        (["topics", "ls", "-X", "linger.ms=soon"], "kafka setting linger.ms (given in --kafka): Invalid value"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, no page of usage: the line says what to change."""
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("anabranch: error: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_no_command_is_answered_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Who types only the name wants to know what there is."""
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`anabranch --version` names program and version."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("anabranch ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (UnreachableError("x"), 3),
        (PeerError("x"), 4),
        (HandlerError("x"), 4),
        (Halted("x"), 4),
        (InternalError("x"), 1),
    ],
)
def test_an_exit_code_says_whose_fault_it_was(error: AnabranchError, code: int) -> None:
    """1 internal, 2 usage, 3 unreachable, 4 halted, refused or failed: a run's result says the same."""
    assert exit_code(error) == code == Result.of_error(error).exit_code


@pytest.mark.parametrize("words", [["--help"], ["broker", "--print-config"]], ids=" ".join)
def test_help_and_broker_start_without_slow_imports(words: list[str], tmp_path: Path) -> None:
    """A broker starts in a blink: the client library and the terminal toolkits are not loaded on its way."""
    code = f"""
import sys
from anabranch.cli import main
assert main({words!r}) == 0
slow = {{"confluent_kafka", "rich", "typer", "click", "asyncio", "tomllib"}} & set(sys.modules)
sys.exit(f"loaded {{slow}}" if slow else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_broker_loads_no_client_library_before_it_listens(tmp_path: Path) -> None:
    """Everything that `serve` needs is imported, and still no client library."""
    code = """
import sys
import anabranch.cli.broker, anabranch.broker.main
slow = {"confluent_kafka", "rich", "typer", "click"} & set(sys.modules)
sys.exit(f"loaded {slow}" if slow else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_print_config_shows_every_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command reads flags, the real environment and a file."""
    path = tmp_path / "some.toml"
    path.write_text("[broker]\nsegment_s = 60\n")
    monkeypatch.setenv("ANABRANCH_BROKER_NODE_ID", "5")
    assert main(["broker", "--config", str(path), "--no-auto-create", "--retention-s", "-1", "--print-config"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["segment_s", "=", "60", "file", str(path)] in lines
    assert ["node_id", "=", "5", "environment", "ANABRANCH_BROKER_NODE_ID"] in lines
    assert ["auto_create", "=", "false", "flag", "--auto-create"] in lines
    assert ["retention_s", "=", "-1", "flag", "--retention-s"] in lines
    assert ["flush", "=", "always", "default"] in lines


def test_a_log_line_is_text_or_json() -> None:
    """Times are UTC with milliseconds, so that lines of several machines can be merged."""
    record = logging.LogRecord("anabranch.broker", logging.WARNING, "", 0, "cut %d bytes", (7,), None)
    record.created, record.msecs = 1700000000.25, 250.0
    assert TextLines().format(record) == "2023-11-14T22:13:20.250Z WARNING anabranch.broker: cut 7 bytes"
    assert json.loads(JsonLines().format(record)) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "anabranch.broker",
        "message": "cut 7 bytes",
    }


def test_a_table_is_aligned_with_numbers_to_the_right() -> None:
    """Columns can be read down."""
    assert table(("NAME", "LAG"), [("orders", "7"), ("x", "1234"), ("y", "-")]) == (
        "NAME     LAG\norders     7\nx       1234\ny          -\n"
    )
    assert table(("A", "MEMBER"), [("a", "-")]) == "A  MEMBER\na  -\n"
    assert table(("A", "B"), []) == "A  B\n"


def test_counts_and_sizes_are_said_as_people_say_them() -> None:
    """One record is no records."""
    assert (plural(1, "record"), plural(2000, "record")) == ("1 record", "2,000 records")
    assert (byte_text(999), byte_text(1536), byte_text(3 * 2**40)) == ("999 B", "1.5 KiB", "3.0 TiB")
