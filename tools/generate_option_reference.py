"""Write docs/guide/broker-options.md from the option table; with --check only say whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

from anabranch.core.options import BrokerOptions, Option, options_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guide" / "broker-options.md"

HEAD = """\
# Options of the broker

Every option can be given in four ways; the first that is there wins:

1. a flag: `anabranch broker --segment-bytes 1048576`
2. an environment variable: `ANABRANCH_BROKER_SEGMENT_BYTES=1048576`
3. a file, `--config FILE` or else `./anabranch.toml`:

   ```toml
   [broker]
   segment_bytes = 1048576
   ```

4. the default

In Python they are the arguments of `Broker(segment_bytes=1048576)`. `anabranch broker --print-config` shows what is in
force and from where. A name that is not in this table is refused, and so is a value outside of its bounds. Units are in
the names: `_s` are seconds, `_bytes` are bytes.

This page is made from the table in the code by `tools/generate_option_reference.py`.

| option | default | allowed | |
|---|---|---|---|
"""


def row(each: Option) -> str:
    """Return the line of the table for an option."""
    cells = [f"`{each.name}`", f"`{each.spell(each.default) or 'none'}`", each.allowed, each.rule.sentence]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """Return the whole page."""
    return HEAD + "\n".join(row(each) for each in options_of(BrokerOptions)) + "\n"


def main(words: list[str]) -> int:
    """Write the page, or check it."""
    if words == ["--check"]:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page()
        print("current" if current else f"{PAGE.name} is not current: run tools/generate_option_reference.py")
        return 0 if current else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
