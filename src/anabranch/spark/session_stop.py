"""Stop a Spark session that we made, also when its JVM is gone: then the next session gets a JVM of its own."""

from __future__ import annotations

import logging
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGER: Final = logging.getLogger("anabranch.spark")


def stop_session(spark: SparkSession) -> None:
    """Stop it. May block for a second; raises nothing that only says that nobody answers."""
    from py4j.protocol import Py4JError

    if _is_jvm_gone():
        _forget(spark)
        return
    try:
        spark.stop()
    except (OSError, Py4JError) as error:  # it went just now
        LOGGER.warning("the Spark session did not stop cleanly: %s", error)
        _forget(spark)


def _is_jvm_gone() -> bool:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - nothing else leads to its process
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None


def _forget(spark: SparkSession) -> None:
    """Do what pyspark does when a session stops, as far as it needs no JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = spark.sparkContext
    context._jsc = None  # noqa: SLF001 - there is nothing behind it any more
    with warnings.catch_warnings(), suppress(OSError):
        warnings.simplefilter("ignore", RuntimeWarning)
        context.stop()
    with SparkContext._lock:  # noqa: SLF001 - what pyspark itself would reset
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - as above
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001 - as above
