"""From what Spark says about a query that failed to a sentence that a person can use.

A query's error is a page: the plan, a Java trace, and, where Python was at work, its trace within. What is wanted is
its last Python exception, if there is one, else Spark's own first line. What we raised ourselves, in a worker or on the
driver, is already a sentence, and starting the query again will not change it.
"""

from __future__ import annotations

import re
from typing import Final

from anabranch.core.errors import AnabranchError, Halted, UsageError
from anabranch.kafka.extents import START_ANEW

CHARACTERS_MAX: Final = 1000
ANOTHER_NAME: Final = "Give the query another name (name=…): it then reads its topic from the start"
_OURS: Final = re.compile(r"^\s*anabranch(?:\.\w+)*\.(\w+): (.+)$", re.MULTILINE)
_FINAL: Final = frozenset({"UsageError", "Halted"})
_PYTHON: Final = re.compile(r"^\s*((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b.*)$", re.MULTILINE)
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_NOT_PYTHON: Final = ("org.apache.", "java.", "py4j.", "scala.", "pyspark.", "Py4J")
_LOSS: Final = re.compile(r"retention removed \d+ offsets|the log was truncated")
_OPTION: Final = "set option failOnDataLoss to false"
_OPTION_AFTER_END: Final = re.compile(rf"To go on at \d+, {_OPTION}\. ")
_ANOTHER_QUERY: Final = re.compile(
    r"sources in the checkpoint|\[(?:STATE_STORE_|STREAMING_STATEFUL|CANNOT_LOAD_STATE_STORE|STATEFUL_)\w*|"
    r"Provided schema doesn't match to the schema for existing state",
)


def said(error: BaseException) -> str:
    """Return the one line that says what went wrong."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        sentence = _OPTION_AFTER_END.sub("", str(ours[-1][1])).replace(_OPTION, 'set on_lost_to_retention="go on"')
        return sentence.replace(START_ANEW, ANOTHER_NAME)[:CHARACTERS_MAX]
    python = [line for line in _PYTHON.findall(text) if not line.startswith(_NOT_PYTHON)]
    if python:
        return str(python[-1]).strip()[:CHARACTERS_MAX]
    for found in _CONDITION.finditer(text):
        if found[1] != "STREAM_FAILED":
            return text[found.start() :].partition("\n")[0].strip()[:CHARACTERS_MAX]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:CHARACTERS_MAX]


def is_final(error: BaseException) -> bool:
    """Tell whether starting the query again would find the same."""
    if isinstance(error, (UsageError, Halted)):
        return True
    text = str(error)
    ours = any(name in _FINAL for name, _ in _OURS.findall(text))
    return bool(ours or _ANOTHER_QUERY.search(text) or "AnalysisException" in text)


def failure(query: str, error: BaseException, attempts: int) -> AnabranchError:
    """Return the error with which a run ends because of a query."""
    what = said(error)
    if _ANOTHER_QUERY.search(str(error)):
        return UsageError(
            f"query {query!r} cannot go on from where it was: {what}: what it keeps between batches is of another kind "
            f"now. {ANOTHER_NAME}; or undo the change"
        )
    if _LOSS.search(what):
        return Halted(f"query {query!r} failed: {what}")
    times = f" {attempts} times in a row" if attempts > 1 else ""
    return Halted(
        f"query {query!r} failed{times}: {what}. Nothing is lost: mend it and run again, it goes on where it was"
    )
