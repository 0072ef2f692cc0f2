"""`run`, `lag` and `why` without a cluster: help, options and where they come from, exit codes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from anabranch.cli import exit_code, main
from anabranch.core.errors import BrokerUnreachable, Halted, UsageError
from anabranch.kafka.admin import Admin
from anabranch.kafka.client import Connection

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("command", ["run", "lag", "why"])
def test_the_help_of_each_command_teaches(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It says how to call the command and shows examples that fit a terminal."""
    with pytest.raises(SystemExit) as leaving:  # how argparse ends after its help
        main([command, "--help"])
    text = capsys.readouterr().out
    assert leaving.value.code == 0
    assert text.startswith(f"usage: anabranch {command} ")
    assert text.count("\n  anabranch ") + text.count("\n  ANABRANCH_") >= 3
    assert max(map(len, text.splitlines())) <= 110


def test_the_run_command_is_listed_first(capsys: pytest.CaptureFixture[str]) -> None:
    """It is what most people come for."""
    assert main(["--help"]) == 0
    commands = capsys.readouterr().out.split("commands:\n")[1].splitlines()
    assert [line.split()[0] for line in commands[:3]] == ["run", "lag", "why"]


def test_a_halted_run_and_an_unreachable_broker_have_their_own_exit_codes() -> None:
    """A supervisor restarts after 3 and wakes somebody after 4."""
    assert exit_code(Halted("x")) == 4
    assert exit_code(BrokerUnreachable("x")) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "name the pipeline as MODULE:PIPELINE"),
        (["run", "app:x", "--engin", "async"], "unknown option --engin; did you mean --engine?"),
        (["run", "app:x", "--engine", "asink"], "option engine: given 'asink', allowed is spark or async"),
        (["run", "app:x", "--until", "soon"], "allowed is end, or a time such as"),
        (["run", "app:x", "--drain-s", "-1"], "option drain_s: given -1"),
        (["run", "app:x", "--kafka", "linger"], "--kafka: given 'linger', allowed is NAME=VALUE"),
        (["run", "app:x", "y"], "unexpected argument 'y'"),
        (["lag"], "GROUP"),
        (["why"], "GROUP"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_that_says_what_to_change(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And exit code 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("x = 1\n")
    assert main(words) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert message in printed


def test_print_config_shows_options_of_the_run_and_of_the_cluster_with_their_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flag over environment over file over default; a password is not shown."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "anabranch.toml").write_text(
        '[run]\ndrain_s = 5\nengine = "inline"\n[kafka]\nbootstrap = "a:1"\nsasl.password = "geheim"\n'
    )
    monkeypatch.setenv("ANABRANCH_RUN_ENGINE", "async")
    assert main(["run", "--until", "end", "--kafka", "linger.ms=5", "--print-config"]) == 0
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert ["engine", "=", "async", "environment", "ANABRANCH_RUN_ENGINE"] in lines
    assert ["drain_s", "=", "5", "file", "anabranch.toml"] in lines
    assert ["until", "=", "end", "flag", "--until"] in lines
    assert ["bootstrap", "=", "a:1", "file", "anabranch.toml"] in lines
    assert ["grace_s", "=", "5", "default"] in lines
    assert "kafka linger.ms = 5" in printed
    assert "kafka sasl.password = (hidden)" in printed
    assert main(["run", "--print-config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engine"]["value"] == "async"


def test_a_misspelt_option_of_the_file_or_environment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that is silently ignored costs an afternoon."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "anabranch.toml").write_text("[run]\ndrain = 5\n")
    assert main(["run", "--print-config"]) == 2
    assert "unknown option drain in [run]; did you mean drain_s?" in capsys.readouterr().err
    (tmp_path / "anabranch.toml").unlink()
    monkeypatch.setenv("ANABRANCH_RUN_ENGIN", "async")
    assert main(["run", "--print-config"]) == 2
    assert "did you mean ANABRANCH_RUN_ENGINE?" in capsys.readouterr().err


def test_a_setting_that_the_library_does_not_know_is_refused_with_the_place_where_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file, or the flag, which wins; from Python it is the argument."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "app_setting.py").write_text(
        "from anabranch import Pipeline\nbilling = Pipeline('billing').read('orders').process(print)\n"
    )
    (tmp_path / "anabranch.toml").write_text("[kafka]\nno.such = 1\n")
    words = ["run", "app_setting:billing", "--engine", "async"]
    assert main(words) == 2
    assert "kafka setting no.such (given in [kafka] of anabranch.toml): No such" in capsys.readouterr().err
    assert main([*words, "--kafka", "no.such=2"]) == 2
    assert "kafka setting no.such (given in --kafka): No such" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"kafka setting no\.such \(given in kafka=\{…\}\): No such"):
        Admin(Connection("127.0.0.1:1", {"no.such": "1"}))


def test_the_default_engine_is_spark_and_the_refusal_names_the_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where pyspark is not installed, the message is in the words of the command line."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "app_spark.py").write_text(
        "from anabranch import Pipeline\nbilling = Pipeline('billing').read('orders').process(print)\n"
    )
    assert main(["run", "app_spark:billing"]) == 2
    assert "pip install 'anabranch[spark]', or --engine async" in capsys.readouterr().err


def test_a_query_on_another_engine_is_refused_in_the_words_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of the sentence, so that nobody looks for a flag that is spelled as in Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "app_table.py").write_text(
        "from anabranch import Pipeline\n"
        "def charge(value: bytes) -> bytes: return value\n"
        "billing = Pipeline('billing').read('orders').process(charge).write('receipts').write_table('./table')\n"
    )
    assert main(["run", "app_table:billing", "--engine", "async"]) == 2
    said = capsys.readouterr().err
    assert "and the engine is async: leave the step out, or --engine spark" in said
    assert "engine=" not in said


@pytest.mark.parametrize("words", [["--master", "local[2]"], ["--members", "2"], ["--conf", "spark.a=b"]])
def test_what_only_spark_takes_is_refused_on_another_engine(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Rather than ignored: who asks for a cluster shall not find out later that he had none."""
    assert main(["run", "app:billing", "--engine", "async", *words]) == 2
    assert f"{words[0]} is for --engine spark, and this is --engine async" in capsys.readouterr().err


def test_settings_of_spark_come_from_the_file_and_from_flags_which_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under [spark] the first word of each name may be left out."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "anabranch.toml").write_text('[spark]\ndriver.memory = "1g"\n"spark.ui.enabled" = true\n')
    assert main(["run", "--print-config", "--conf", "spark.driver.memory=2g"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2:] == ["conf spark.driver.memory = 2g", "conf spark.ui.enabled = true"]
    assert main(["run", "--print-config", "--conf", "driver.memory=2g"]) == 2
    assert "allowed is spark.NAME=VALUE" in capsys.readouterr().err
