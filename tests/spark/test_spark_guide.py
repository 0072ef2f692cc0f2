"""The guide's examples are what happens: its pipeline as a module that members import, the rest as one would run it."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from source_topics import delete_topic, new_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from anabranch import Broker

pytestmark = pytest.mark.xdist_group("spark")

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "spark-queries.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
TOPICS = ("orders", "receipts")


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The definitions of the guide as a module: members import it by its name."""
    (tmp_path / "spark_guide.py").write_text("\n".join(block for block in BLOCKS if "broker." not in block))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module("spark_guide")
    del sys.modules["spark_guide"]


@pytest.fixture
def broker(anabranch_broker: Broker) -> Iterator[Broker]:
    for topic in TOPICS:
        new_topic(anabranch_broker.bootstrap, 2, topic)
    yield anabranch_broker
    for topic in TOPICS:
        delete_topic(anabranch_broker.bootstrap, topic)


def test_the_guides_examples_run_as_they_stand(spark: SparkSession, broker: Broker, guide: Any, tmp_path: Path) -> None:
    """A whole run on Spark, members and query, then a stream over what it left."""
    names: dict[str, Any] = {**vars(guide), "spark": spark, "broker": broker}
    blocks = [block for block in BLOCKS if "broker." in block]
    assert len(blocks) == 2
    for block in blocks:
        code = block.replace('"lake/receipts"', f'"{tmp_path}/lake/receipts"')  # the shared JVM has a folder of its own
        exec(compile(code, str(GUIDE), "exec"), names)
    assert [path.name for path in (tmp_path / ".anabranch" / "billing" / "queries").iterdir()] == ["receipts"]
