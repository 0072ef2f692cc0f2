"""What the README and examples/ show is what happens."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, cwd=ROOT)


def readme_code(containing: str) -> list[str]:
    """Return the README's blocks of Python that contain a text."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [block for block in blocks if containing in block]


def test_the_readmes_broker_example_delivers_its_record() -> None:
    """The six lines are run as they stand in the README."""
    (code,) = readme_code("undelivered:")
    assert len([line for line in code.splitlines() if line and not line.startswith("from ")]) <= 6
    done = run("-c", code)
    assert (done.returncode, done.stdout) == (0, "undelivered: 0\n"), done.stderr


def test_the_readmes_hello_world_is_the_example_that_is_tested() -> None:
    """Word for word, so that what is shown is what runs."""
    example = (ROOT / "examples" / "hello.py").read_text().split('"""')[2].strip()
    assert all(code.strip() == example for code in readme_code('Pipeline("hello")'))


def test_the_demo_ends_with_the_oracles_verdict() -> None:
    """Two foreign clients share a group over the embedded broker; nothing is lost, reordered or repeated."""
    done = run("examples/demo_broker.py", "--records", "2000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "verdict: ok records=2000 lost=0 reordered=0 duplicates=0"
