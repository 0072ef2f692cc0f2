"""Start a Spark session: find Java, launch the JVM with its output in a file, and leave the process as it was."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.errors import UsageError
from anabranch.spark.java import find_java
from anabranch.spark.masters import describe_master
from anabranch.spark.session_conf import checked_conf, session_conf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

LOG_FILE: Final = "spark.log"
LOG_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger log of earlier runs is put aside when a JVM starts; one older log is kept."""
_TAIL_BYTES: Final = 4000


def make_session(app: str, master: str, conf: Mapping[str, str], state_dir: Path, queries: int = 0) -> SparkSession:
    """Start a session, and the JVM if this process has none yet.

    What Spark logs, and what handlers print on this machine, goes to `<state_dir>/spark.log` of the first session: the
    JVM keeps its file. Blocks for about six seconds, or one when there is a JVM.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    spark_conf = _as_spark_conf(session_conf(app, master, checked_conf(conf), queries))
    with _environment(master), _interrupts_kept():
        try:
            gateway = SparkContext._gateway or _launch(spark_conf, state_dir)  # noqa: SLF001 - nothing else tells it
            context = SparkContext(conf=spark_conf, gateway=gateway)
        except Exception as error:
            raise _explained(error, master) from error
        _expect_hang_ups(context)
        return SparkSession.builder.config(conf=context.getConf()).getOrCreate()


def _expect_hang_ups(context: SparkContext) -> None:
    """Print no traceback when the JVM hangs up on pyspark's server of accumulators: it does, and calls again."""
    server: Any = context._accumulatorServer  # noqa: SLF001 - nothing else leads to it
    told = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError):
            told(request, address)

    server.handle_error = handle_error


def _explained(error: Exception, master: str) -> UsageError:
    if isinstance(error, UsageError):
        return error
    java = getattr(error, "java_exception", None)
    text = str(java.toString() if java is not None else error).splitlines()
    return UsageError(f"no Spark session on {master!r}: {text[0] if text else type(error).__name__}")


def _launch(conf: SparkConf, state_dir: Path) -> Any:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    path = _log_path(state_dir)
    with path.open("ab") as log:
        begin = log.tell()
        try:
            return launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]  # pyspark's
        except PySparkRuntimeError as error:
            raise UsageError(f"Spark's JVM did not start: {_tail(path, begin)} (more in {path})") from error


def _log_path(state_dir: Path) -> Path:
    path = state_dir / LOG_FILE
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_name(f"{LOG_FILE}.old"))
        path.touch(0o600)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; choose another folder with state_dir") from error
    return path


def _tail(path: Path, begin: int) -> str:
    with path.open("rb") as log:
        log.seek(max(begin, path.stat().st_size - _TAIL_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    told = [line.strip() for line in lines if line.strip() and not line.startswith("WARNING")]
    return " / ".join(told[:3]) or "it said nothing"


def _as_spark_conf(settings: Mapping[str, str]) -> SparkConf:
    from pyspark import SparkConf

    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    return conf


@contextmanager
def _environment(master: str) -> Iterator[None]:
    """Set what Spark reads from the environment when it starts, then put it back: it is the user's."""
    wanted = dict(find_java().environment)
    is_here = describe_master(master).is_on_this_machine
    if is_here or not os.environ.get("PYSPARK_PYTHON"):
        wanted["PYSPARK_PYTHON"] = sys.executable
    if is_here and not os.environ.get("SPARK_LOCAL_IP"):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Undo that Spark takes SIGINT for itself: it would cancel the members instead of letting them drain."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
