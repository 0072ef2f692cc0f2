"""Which engine runs a pipeline, and where it is found. Loaded by name: this layer stands below the runtime."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

ENGINES = ("spark", "async", "threads", "processes", "inline")
_HERE = frozenset({"async", "inline"})
_RUNTIME = "anabranch.runtime.run"
_INSTALL_SPARK = "pip install 'anabranch[spark]'"


def load_runner(verb: Literal["run", "start", "running"], engine: str) -> Callable[..., Any]:
    """Return the runtime's function for a verb; raise UsageError for an engine that cannot be had, naming another."""
    if engine not in _HERE:
        raise _refusal(verb, engine)
    runner: Callable[..., Any] = getattr(import_module(_RUNTIME), verb)
    return runner


def refuse_stream() -> UsageError:
    """Return the error for a DataFrame over the outputs, which needs the Spark engine."""
    if not _has_spark():
        return UsageError(f"stream(spark) needs Spark: {_INSTALL_SPARK}")
    return UsageError(
        "stream(spark) comes with the Spark engine in a later version; "
        "until then read the topic that .write names with Spark's own Kafka source"
    )


def _refusal(verb: str, engine: str) -> UsageError:
    if engine == "spark":
        if not _has_spark():
            return UsageError(f'Spark is the default engine: {_INSTALL_SPARK}, or {verb}(engine="async")')
        return UsageError(f'the Spark engine comes with a later version; use {verb}(engine="async")')
    if engine in ENGINES:
        return UsageError(
            f'engine {engine!r} is not yet available; use {verb}(engine="async"): '
            "it runs plain functions in a pool of threads"
        )
    near = get_close_matches(str(engine), ENGINES, n=1, cutoff=0.6)
    meant = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(ENGINES)}"
    return UsageError(f"engine {engine!r} is not known: {meant}")


def _has_spark() -> bool:
    return find_spec("pyspark") is not None
