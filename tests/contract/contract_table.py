"""Prints, at the end of a session, every promise of the contract with every engine it was held to.

Each report carries its promise and engine in `user_properties`, which travel from xdist's workers to the printer.
`tests/conftest.py` loads this plugin, because the printer collects nothing and never sees the suite's own conftest.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import pytest

PROMISES = {
    "C1": "nothing is lost by us",
    "C2": "order per key",
    "C3": "a failure delays its key only",
    "C4": "stale work is fenced",
    "C5": "memory is bounded",
    "C6": "dead letters are exact",
    "C7": "parking a key: refused, not yet available",
    "C8": "stopping is clean",
    "C9": "restored progress is checked",
    "C10": "holes are normal",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "promise(name): which promise a contract test shows to hold")
    config.addinivalue_line("markers", "own_broker: freezes or restarts the broker, so it needs an embedded one")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("promise")
    if marker is not None:
        callspec = getattr(item, "callspec", None)
        engine = callspec.params.get("engine_runner", "async") if callspec else "async"  # `async_runner` has no choice
        for name in marker.args:
            item.user_properties.append(("promise", (name, engine)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    seen: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            for name, value in getattr(report, "user_properties", ()):
                if name == "promise":
                    seen[value[0]][value[1]].append(outcome)
    if not seen:
        return
    bootstrap = os.environ.get("ANABRANCH_TEST_BOOTSTRAP")
    terminalreporter.section(f"contract, on {'the Kafka at ' + bootstrap if bootstrap else 'the embedded broker'}")
    for promise, sentence in PROMISES.items():
        engines = ", ".join(f"{engine} {_told(seen[promise][engine])}" for engine in sorted(seen[promise]))
        terminalreporter.line(f"{promise:<4}{sentence:<44}{engines or 'not run'}")


def _told(outcomes: list[str]) -> str:
    bad = [outcome for outcome in outcomes if outcome in {"failed", "error"}]
    if bad:
        return f"FAILED ({len(bad)} of {len(outcomes)})"
    passed, skipped = outcomes.count("passed"), outcomes.count("skipped")
    if not passed:
        return f"skipped ({skipped})"
    return f"ok ({passed}, {skipped} skipped)" if skipped else f"ok ({passed})"
