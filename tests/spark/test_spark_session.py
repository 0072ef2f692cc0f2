"""Sessions: one that is there is taken and its slots are counted; pipelines reach its Python workers."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from anabranch import Pipeline
from anabranch.core.errors import UsageError
from anabranch.spark.module_archive import send_modules
from anabranch.spark.modules import user_modules
from anabranch.spark.session import open_session
from anabranch.spark.shipping import ship

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from anabranch.spark.shipping import Shipment

pytestmark = pytest.mark.xdist_group("spark")
LOCK = threading.Lock()  # what nobody can pickle


def handler_of_the_module(value: bytes) -> str:
    with LOCK:
        return f"module {len(value)}"


NAMED = Pipeline("named").read("orders").process(handler_of_the_module)


def told_by_a_worker(spark: SparkSession, shipment: Shipment) -> tuple[str, str]:
    """Load a shipment in a Python worker; return which pipeline it found and what its handler returns."""

    def load(_: int) -> tuple[str, Any]:
        pipeline = shipment.load()
        return repr(pipeline), pipeline.plan().steps[0].handler(b"123")

    repr_there, result = spark.sparkContext.parallelize([0], 1).map(load).collect()[0]
    return repr_there, result


def test_a_session_that_is_there_is_taken_and_not_stopped(spark: SparkSession, tmp_path: Path) -> None:
    """Members are as many as it has room for, less one slot for the queries."""
    with open_session(app="x", state_dir=tmp_path, partitions=100, queries=2) as session:
        assert (session.spark, session.is_ours, session.slots, session.members) == (spark, False, 8, 7)
        assert session.is_on_this_machine
    assert spark.range(3).count() == 3


def test_runs_of_one_process_share_its_slots(spark: SparkSession, tmp_path: Path) -> None:
    """What one holds the other cannot have; what it gives back, it can."""
    with open_session(app="x", state_dir=tmp_path, members=5):
        with pytest.raises(UsageError, match=r"has 8 slots, and other runs hold 5 of them: .* room for 4 members"):
            open_session(app="y", state_dir=tmp_path, members=4)
        open_session(app="y", state_dir=tmp_path, members=3, spark=spark).close()
    open_session(app="y", state_dir=tmp_path, members=4).close()


def test_a_session_that_is_there_is_not_changed(spark: SparkSession, tmp_path: Path) -> None:
    """Another master, or a setting that it does not have, is refused; what it has may be asked for."""
    with pytest.raises(UsageError, match=r"a Spark session on 'local\[8,1000\]' already"):
        open_session(app="x", state_dir=tmp_path, members=1, master="local[2]")
    with pytest.raises(UsageError, match="a Spark session without it already"):
        open_session(app="x", state_dir=tmp_path, members=1, conf={"spark.driver.memory": "3g"})
    open_session(
        app="x", state_dir=tmp_path, members=1, master="local[8,1000]", conf={"spark.ui.enabled": "false"}
    ).close()


def test_making_a_session_leaves_the_process_as_it_was(spark: SparkSession) -> None:
    """Ctrl-C is not Spark's, Python workers are this interpreter, and Spark's words are in a file."""
    assert "pyspark" not in getattr(signal.getsignal(signal.SIGINT), "__module__", "")
    there = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("sys").executable).collect()
    assert there == [sys.executable]


def test_a_pipeline_of_a_test_module_or_a_function_reaches_a_worker(spark: SparkSession) -> None:
    """The module is imported there; its lock is the worker's own."""
    more = 5

    def inner(value: bytes) -> str:
        with LOCK:
            return f"inner {len(value) + more}"

    pipeline = Pipeline("inner").read("orders").process(inner)
    assert told_by_a_worker(spark, ship(NAMED)) == (repr(NAMED), "module 3")
    assert told_by_a_worker(spark, ship(pipeline)) == (repr(pipeline), "inner 8")


def test_a_worker_that_served_another_run_imports_a_changed_module_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives used Python workers to the next job; the handler is the new one all the same."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for answer in ("old", "new"):
        (tmp_path / "changing_app.py").write_text(
            f"from anabranch import Pipeline\ndef handler(value: bytes) -> str: return {answer!r}\n"
            "changing = Pipeline('changing').read('orders').process(handler)\n"
        )
        sys.modules.pop("changing_app", None)
        import changing_app  # type: ignore[import-not-found]  # it is written just now

        assert told_by_a_worker(spark, ship(changing_app.changing))[1] == answer
    sys.modules.pop("changing_app")


def test_modules_of_the_user_s_are_sent_to_a_cluster(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the driver has loaded and nobody has installed, whole packages, can be imported from the archive."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sent_shop").mkdir()
    (tmp_path / "sent_shop" / "__init__.py").write_text("")
    (tmp_path / "sent_shop" / "later.py").write_text("ANSWER = 42\n")
    import sent_shop  # type: ignore[import-not-found]  # as above

    users = [each for each in user_modules() if each[0] == sent_shop.__name__]
    send_modules(spark, users, tmp_path / "state")

    def look(_: int) -> tuple[int, str]:
        from sent_shop import later  # type: ignore[import-not-found]  # as above

        return later.ANSWER, later.__file__

    answer, file = spark.sparkContext.parallelize([0], 1).map(look).collect()[0]
    assert answer == 42
    assert "modules-" in file
    sys.modules.pop("sent_shop")
