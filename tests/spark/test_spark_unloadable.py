"""Fault 25: what a member cannot import ends the run with a sentence, at once and without Spark's retries."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from anabranch import Broker

pytestmark = pytest.mark.xdist_group("spark")
APP = """
import only_here
from anabranch import Pipeline

async def handler(value: bytes) -> None: ...

lonely = Pipeline("lonely").read(only_here.TOPIC).process(handler)
"""


def test_a_package_that_members_lack_is_named(
    spark: SparkSession,
    anabranch_broker: Broker,
    anabranch_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver has it, so only the members can tell; the next run with the package mended begins as usual."""
    only_here = types.ModuleType("only_here")
    only_here.TOPIC = anabranch_topic  # type: ignore[attr-defined]  # what the module is made for
    monkeypatch.setitem(sys.modules, "only_here", only_here)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lonely_app.py").write_text(APP)
    import lonely_app  # type: ignore[import-not-found]  # it is written just now

    options = {"bootstrap": anabranch_broker.bootstrap, "state_dir": tmp_path / "state", "members": 2, "spark": spark}
    run = lonely_app.lonely.start(**options)
    with pytest.raises(
        UsageError, match=r"lonely_app:lonely cannot be loaded on .*; install only_here for that Python"
    ):
        run.join(60)
    assert run.result.exit_code == 2
    (tmp_path / "only_here.py").write_text(f"TOPIC = {anabranch_topic!r}\n")
    producer = Producer({"bootstrap.servers": anabranch_broker.bootstrap})
    producer.produce(anabranch_topic, b"value")
    producer.flush(30)
    assert lonely_app.lonely.run(until="end", **options) == 0
    sys.modules.pop("lonely_app")
