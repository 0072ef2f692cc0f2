"""Engines by name: those that are not there are refused with what to use instead, before anything is opened."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import anabranch
from anabranch import Pipeline, UsageError
from anabranch.pipeline.engines import load_runner

PIPELINE = Pipeline("billing").read("orders").process(print)
PUBLIC = (
    *("Pipeline", "Context", "Record", "Out", "Retry", "Commit", "Gate", "Breaker", "Poison", "RetryAfter", "Fatal"),
    *("Broker", "AnabranchError", "UsageError", "PeerError", "HandlerError", "InternalError", "Halted"),
    *("HandlerTimeout", "DecodeError", "BrokerUnreachable"),
)
VERBS = ("run", "start", "running")


@pytest.mark.parametrize("verb", VERBS)
def test_spark_is_loaded_by_name_and_given_the_pipeline(verb: str) -> None:
    """The pipeline itself travels to the members, and they compile their own plan."""
    runner = load_runner(verb, "spark", PIPELINE)
    assert (runner.func.__module__, runner.func.__name__) == ("anabranch.spark.run", verb)
    assert runner.keywords == {"pipeline": PIPELINE}


def test_without_pyspark_the_default_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence of the design, word for word."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(UsageError) as caught:
        PIPELINE.run()
    assert str(caught.value) == (
        "Spark is the default engine: pip install 'anabranch[spark]', or run(engine=\"async\")"
    )
    with pytest.raises(UsageError, match=r"pip install 'anabranch\[spark\]'"):
        PIPELINE.write("receipts").stream(None)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("threads", 'not yet available; use .*engine="async"'),
        ("processes", 'not yet available; use .*engine="async"'),
        ("asnyc", "did you mean 'async'"),
        ("in-line", "did you mean 'inline'"),
        ("flink", "known are spark, async, threads, processes, inline"),
        (None, "known are|did you mean"),
    ],
)
def test_an_engine_that_cannot_be_had_is_refused(verb: str, engine: Any, said: str) -> None:
    """The nearest known name is suggested."""
    with pytest.raises(UsageError, match=said):
        getattr(PIPELINE, verb)(engine=engine)


@pytest.mark.parametrize("verb", VERBS)
def test_an_incomplete_pipeline_is_refused_before_it_is_run(verb: str) -> None:
    """The runtime never sees it."""
    with pytest.raises(UsageError, match=r"add \.process\(handler\)"):
        getattr(Pipeline("billing").read("orders"), verb)(engine="async")


def test_every_public_name_is_there_and_importing_the_package_loads_nothing() -> None:
    """The names of the design; worker processes import the package, so it stays light."""
    for name in PUBLIC:
        assert name in anabranch.__all__
        assert name in dir(anabranch)
        assert isinstance(getattr(anabranch, name), Callable)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = anabranch.Nothing
    code = "import sys, anabranch; print([m for m in sys.modules if m.startswith('anabranch.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
