"""`anabranch run MODULE:PIPELINE`: what is found, and what is said when it is not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from anabranch.cli import main
from anabranch.cli.target import load_pipeline
from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PIPELINE = """
from anabranch import Pipeline

def look(value):
    return None

billing = Pipeline("billing").read("orders").process(look)
"""

Write = "Callable[[str, str], None]"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Write modules into an empty current folder; forget them afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write_module(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    yield write_module
    for name in set(sys.modules) - before:
        if name.startswith("app"):
            del sys.modules[name]


def test_a_pipeline_is_found_by_module_and_name(write: Write) -> None:
    """The module is looked for in the current folder, a dotted one too."""
    write("app_one.py", PIPELINE)
    write("app_folder/two.py", PIPELINE)
    assert load_pipeline("app_one:billing").name == "billing"
    assert load_pipeline("app_folder.two:billing").name == "billing"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("ap_one:billing", r"no module 'ap_one' in .*; did you mean app_one\?"),
        ("billing_of_another_folder:x", r"no module .*: run the command in the folder that has billing_of_another_f"),
        ("app_one.py:billing", r"name the module, not the file: app_one:billing"),
        ("./app_folder/two.py:billing", r"name the module, not the file: app_folder\.two:billing"),
        ("app_one:biling", r"module app_one has no 'biling'; did you mean billing\?"),
        ("app_one:zzz", r"module app_one has no 'zzz'; known are billing"),
        ("app_one:look", r"app_one:look is of type function, not a Pipeline; if it makes one, assign what it returns"),
        ("app_one", r"names no pipeline: it has app_one:billing"),
        ("app_one:", r"names no pipeline: it has app_one:billing"),
        ("app_none:x", r"app_none has none at its top level; assign one to a name, as in app:billing"),
        (":billing", r"allowed is MODULE:PIPELINE, as in app:billing"),
        ("app one:billing", r"allowed is MODULE:PIPELINE"),
    ],
)
def test_a_wrong_target_is_told_the_right_one(write: Write, target: str, message: str) -> None:
    """Each thing that a stranger may type is answered with what to type instead."""
    write("app_one.py", PIPELINE)
    write("app_folder/two.py", PIPELINE)
    write("app_none.py", "number = 1\n")
    with pytest.raises(UsageError, match=message):
        load_pipeline(target)


def test_an_error_in_the_users_module_is_shown_with_his_frames_only(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """The import system's frames and ours say nothing to him; his last line and the error do."""
    write("app_settings.py", "def limit():\n    return {}['limit']\n")
    write("app_broken.py", "import app_settings\n\nlimit = app_settings.limit()\n")
    assert main(["run", "app_broken:billing", "--engine", "async"]) == 2
    shown = capsys.readouterr().err
    assert "limit = app_settings.limit()" in shown
    assert "return {}['limit']" in shown
    assert "importlib" not in shown
    assert "cli/target.py" not in shown
    assert shown.splitlines()[-1] == "anabranch: error: module app_broken cannot be imported: KeyError: 'limit'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_package_at_all\n", "install no_such_package_at_all where this command runs"),
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        (
            "from anabranch import Pipeline\nPipeline('x').read('t').process(print).run(engine='async')\n",
            'put .run() under `if __name__ == "__main__":`',
        ),
        ("import sys\nsys.exit(3)\n", 'put what the script does under `if __name__ == "__main__":`'),
        ("from anabranch import Pipeline\nPipeline('x').process(print)\n", "begin with .read(topic)"),
        ("from anabranch import Pipline\n", "Pipline"),
    ],
)
def test_a_module_that_cannot_be_imported_says_what_to_mend(
    write: Write, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    """A missing package, a slip of the pen, a script without a main guard, a pipeline that is refused."""
    write("app_bad.py", text)
    assert main(["run", "app_bad:billing", "--engine", "async"]) == 2
    shown = capsys.readouterr().err
    assert "app_bad.py" in shown
    assert message in shown.splitlines()[-1]
