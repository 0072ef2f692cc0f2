"""What an editor knows: mypy says about each snippet line what its comment says, and nothing about the examples."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
SNIPPETS = Path(__file__).parent / "snippets"
_SAID = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): (?P<kind>note|error): (?P<text>.*)$")
_REVEALED = re.compile(r'Revealed type is "(?P<type>.*)"$')
_MODULES = re.compile(r"(?<![\w.])(?:[a-z_]+\.)+(?=[A-Z])")
_TYPED_DICT = re.compile(r"TypedDict\((\w+), \{[^}]*\}\)")


def said(*arguments: str) -> Iterator[tuple[str, int, str, str]]:
    """Run mypy in strict mode; give file, line, kind and text of what it says."""
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    out, err, _ = api.run(["--strict", "--no-error-summary", *settings, *arguments])
    assert not err
    for line in out.splitlines():
        match = _SAID.match(line)
        assert match is not None, line
        yield Path(match["file"]).name, int(match["line"]), match["kind"], match["text"]


def expected(path: Path) -> dict[int, str]:
    """Return the comments of lines that reveal a type or must be refused."""
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code, _, comment = line.rpartition("  # ")
        if code.startswith("reveal_type(") or comment == "refused":
            found[number] = comment
    return found


def plainly(revealed: str) -> str:
    return _MODULES.sub("", _TYPED_DICT.sub(r"\1", _MODULES.sub("", revealed)))


@pytest.mark.parametrize("path", sorted(SNIPPETS.glob("*.py")), ids=lambda path: path.stem)
def test_mypy_says_about_each_line_what_its_comment_says(path: Path) -> None:
    """Types go through every step to the next handler, and what does not fit is refused before it runs."""
    got: dict[int, str] = {}
    for _, line, kind, text in said(str(path)):
        revealed = _REVEALED.match(text)
        if revealed is not None:
            got[line] = plainly(revealed["type"])
        elif kind == "error":
            got[line] = "refused"
    wanted = expected(path)
    assert len(wanted) > 30
    assert got == wanted


def test_mypy_has_nothing_to_say_about_the_examples() -> None:
    """A user who copies one starts without red lines."""
    examples = sorted(str(path) for path in (ROOT / "examples").glob("*.py"))
    assert len(examples) > 1
    assert list(said(*examples)) == []
