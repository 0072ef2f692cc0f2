"""Write docs/wire-support.md from the API handlers' docstrings and the table of versions.

Run it as `python tools/generate_wire_support.py`; a test checks that the page is current.
"""

import importlib
import inspect
from pathlib import Path

from anabranch.broker.api.dispatch import HANDLERS
from anabranch.broker.wire.apis import API

PAGE = Path(__file__).parent.parent / "docs" / "wire-support.md"
HEAD = """# What of Kafka's protocol is served

Made by `tools/generate_wire_support.py` from the handlers in `broker/api/`; change it there.

| key | API | versions |
|---|---|---|
"""


def page() -> str:
    """Answer the page's text."""
    keys = sorted(HANDLERS)
    rows = "".join(f"| {key} | {API[key].name} | {API[key].version_min}-{API[key].version_max} |\n" for key in keys)
    return HEAD + rows + "".join(f"\n## {key} {API[key].name}\n\n{_behaviour(key)}\n" for key in keys)


def _behaviour(key: int) -> str:
    module = importlib.import_module(HANDLERS[key].__module__)
    return inspect.cleandoc(module.__doc__ or "").split(": ", 1)[1].strip()


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
