"""Which engine runs a pipeline, and where it is found. Loaded by name: this layer stands below the runtime."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from anabranch.core.errors import UsageError
from anabranch.pipeline.importing import refuse_while_importing

if TYPE_CHECKING:
    from collections.abc import Callable

ENGINES = ("spark", "async", "threads", "processes", "inline")
_HERE = frozenset({"async", "inline"})
_RUNTIME = "anabranch.runtime.run"
_SPARK = "anabranch.spark.run"
_STREAM = "anabranch.spark.stream"
_INSTALL_SPARK = "pip install 'anabranch[spark]'"


def load_runner(verb: Literal["run", "start", "running"], engine: str, pipeline: object) -> Callable[..., Any]:
    """Return an engine's function for a verb; raise UsageError for an engine that cannot be had, naming another.

    On Spark the pipeline itself travels to the members, not its plan: they are other processes and compile their own.
    """
    refuse_while_importing(verb)
    if engine == "spark" and _has_spark():
        return partial(getattr(import_module(_SPARK), verb), pipeline=pipeline)
    if engine not in _HERE:
        raise _refusal(verb, engine)
    runner: Callable[..., Any] = getattr(import_module(_RUNTIME), verb)
    return runner


def load_stream() -> Callable[..., Any]:
    """Return the function that makes a DataFrame of the outputs; raise UsageError without Spark."""
    if not _has_spark():
        raise UsageError(f"stream(spark) needs Spark: {_INSTALL_SPARK}")
    stream: Callable[..., Any] = import_module(_STREAM).stream
    return stream


def _refusal(verb: str, engine: str) -> UsageError:
    if engine == "spark":
        return UsageError(f'Spark is the default engine: {_INSTALL_SPARK}, or {verb}(engine="async")')
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
