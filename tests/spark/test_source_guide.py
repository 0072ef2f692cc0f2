"""The guide's examples are what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch import Broker
from anabranch.spark import source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "spark-source.md"


@pytest.mark.xdist_group("spark")
def test_the_guides_examples_run(spark: SparkSession) -> None:
    """All blocks as they stand, one after the other; they take the session that is there."""
    names: dict[str, Any] = {"__name__": "guide"}
    try:
        for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
            exec(compile(block, str(GUIDE), "exec"), names)
        assert names["spark"].sparkContext is spark.sparkContext
    finally:
        broker = names.get("broker")
        if isinstance(broker, Broker):
            broker.stop()


def test_the_guide_has_every_option() -> None:
    """An option that nobody can find is no option."""
    text = GUIDE.read_text()
    for name in (*source_options._READ, *source_options._WRITE):
        assert f"| `{name}` |" in text
