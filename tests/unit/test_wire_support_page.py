"""The page of what is served says what the code says."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wire_support_page_is_current() -> None:
    """A changed handler or version table is followed by `python tools/generate_wire_support.py`."""
    tool = runpy.run_path(str(ROOT / "tools" / "generate_wire_support.py"))
    assert (ROOT / "docs" / "wire-support.md").read_text() == tool["page"]()
