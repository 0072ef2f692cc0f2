"""Write the option pages of the guide from the option tables; with --check only say whether they are current."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from anabranch.core.options import BrokerOptions, Option, OptionGroup, options_of
from anabranch.core.run_options import RunOptions

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "guide"

HEAD = """\
# Options of {title}

Every option can be given in four ways; the first that is there wins:

1. a flag: `{command} {flag} {value}`
2. an environment variable: `{variable}={value}`
3. a file, `--config FILE` or else `./anabranch.toml`:

   ```toml
   [{section}]
   {name} = {value}
   ```

4. the default

{paragraph}

This page is made from the table in the code by `tools/generate_option_reference.py`.

| option | default | allowed | |
|---|---|---|---|
"""


RULES = (
    "A name that is not in this table is refused, and so is a value outside of its bounds. Units are in the names: "
    "`_s` are seconds, `_bytes` are bytes."
)


@dataclass(frozen=True)
class Page:
    """One page of the guide."""

    file: str
    group: type[OptionGroup]
    title: str
    command: str
    example: str
    value: str
    python: str

    @property
    def path(self) -> Path:
        """Return where it stands."""
        return GUIDE / self.file

    def text(self) -> str:
        """Return the whole page."""
        table = options_of(self.group)
        example = next(each for each in table if each.name == self.example)
        head = HEAD.format(
            title=self.title,
            command=self.command,
            flag=example.flag,
            variable=example.environment,
            section=example.section,
            name=example.name,
            value=self.value,
            paragraph=fill(f"{self.python} {RULES}", 120, break_on_hyphens=False),
        )
        return head + "\n".join(row(each) for each in table) + "\n"


PAGES = (
    Page(
        "broker-options.md",
        BrokerOptions,
        "the broker",
        "anabranch broker",
        "segment_bytes",
        "1048576",
        "In Python they are the arguments of `Broker(segment_bytes=1048576)`. `anabranch broker --print-config` shows "
        "what is in force and from where.",
    ),
    Page(
        "run-options.md",
        RunOptions,
        "a run",
        "anabranch run app:billing",
        "drain_s",
        "60",
        "In Python they are the arguments of `billing.run(drain_s=60)` and `start`, apart from the log's: there "
        "logging is the program's own. `anabranch run --print-config` shows what is in force and from where.",
    ),
)


def row(each: Option) -> str:
    """Return the line of the table for an option."""
    cells = [f"`{each.name}`", f"`{each.spell(each.default) or 'none'}`", each.allowed, each.rule.sentence]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(words: list[str]) -> int:
    """Write the pages, or check them."""
    stale = [page for page in PAGES if not page.path.is_file() or page.path.read_text(encoding="utf-8") != page.text()]
    if words == ["--check"]:
        for page in stale:
            print(f"{page.file} is not current: run tools/generate_option_reference.py")
        return 1 if stale else 0
    GUIDE.mkdir(parents=True, exist_ok=True)
    for page in stale:
        page.path.write_text(page.text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
