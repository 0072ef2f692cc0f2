"""The guide's examples are what happens."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from anabranch import Pipeline

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "pipeline.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def executed(blocks: list[str]) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    return names


def test_every_pipeline_of_the_guide_can_be_planned_and_explained() -> None:
    """Without a broker: what is shown is accepted by the builder."""
    names = executed([block for block in BLOCKS if "Broker()" not in block])
    pipelines = [value for value in names.values() if isinstance(value, Pipeline)]
    assert len(pipelines) >= 8
    for pipeline in pipelines:
        assert pipeline.plan().name == pipeline.name
        assert "cannot run yet" not in pipeline.explain()


def test_the_guides_pipelines_run_on_the_embedded_broker(tmp_path: Path) -> None:
    """All blocks as they stand, one after the other, as a program."""
    script = tmp_path / "guide.py"
    script.write_text("\n".join(BLOCKS))
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
