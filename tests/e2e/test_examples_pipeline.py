"""The examples of pipelines, run as a new user runs them: from a folder of his own, against the embedded broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_S = 60.0  # only a hang reaches it

Run = "Callable[[str], list[str]]"


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], list[str]]:
    """Run an example to its end; give its lines. It must exit with 0 and complain of nothing."""

    def run_example(name: str) -> list[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / name)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            cwd=tmp_path,
            env=environment,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout.splitlines()

    return run_example


def test_hello_world_has_six_lines_and_says_hello(run: Run) -> None:
    """Broker, record, pipeline: no more lines than fingers on a hand and one."""
    code = (EXAMPLES / "hello.py").read_text().split('"""')[2]
    assert len([line for line in code.splitlines() if line and not line.startswith("from ")]) <= 6
    assert run("hello.py") == ["hello, Ada"]


def test_a_failing_record_holds_up_its_own_key_and_no_other(run: Run) -> None:
    """Bob's first order is tried four times; his second waits for it; Ann's and Eve's do not."""
    lines = run("retries.py")
    assert [line for line in lines if line.startswith("bob")] == [
        "bob-1: attempt 1 failed",
        "bob-1: attempt 2 failed",
        "bob-1: attempt 3 failed",
        "bob-1: charged at attempt 4",
        "bob-2: charged at attempt 1",
    ]
    ann = [line for line in lines if line.startswith("ann")]
    assert ann == ["ann-1: charged at attempt 1", "ann-2: charged at attempt 1"]
    assert lines.index("ann-2: charged at attempt 1") < lines.index("bob-1: charged at attempt 4")
    assert lines.index("eve-1: charged at attempt 1") < lines.index("bob-1: charged at attempt 4")


def test_dead_letters_are_read_back_with_their_reasons(run: Run) -> None:
    """Poison at once, undecodable bytes at once, a transient error after its attempts; the others are charged."""
    lines = run("dead_letters.py")
    split = next(number for number, line in enumerate(lines) if line.startswith("--- anabranch consume"))
    assert lines[:split] == ["charged 5", "charged 8"]
    letters = {line.partition(":")[0]: line for line in lines[split + 1 :]}
    assert sorted(letters) == ["ann", "bob", "eve"]
    assert letters["bob"].startswith("bob: -7  anabranch.topic=amounts,anabranch.partition=0,anabranch.offset=1,")
    assert "anabranch.attempts=1" in letters["bob"]
    assert "anabranch.message=cannot charge -7" in letters["bob"]
    assert letters["ann"].startswith("ann: six  ")
    assert "DecodeError" in letters["ann"]
    assert "anabranch.attempts=3,anabranch.error=ConnectionError" in letters["eve"]


def test_why_names_the_stuck_key_and_after_the_stop_its_offset(run: Run) -> None:
    """While it runs: key, step, error, age. Afterwards, from the commit alone: the offset and how to see the record."""
    text = "\n".join(run("stuck_key.py"))
    running, _, afterwards = text.partition("--- anabranch why shipping, after the stop\n")
    assert "Held back: orders/0 at offset 7 for " in running
    assert "(key 'key-7') in step 'ship'" in running
    assert "last error LookupError: no address for order-7" in running
    assert "983 settled ahead of it" in running
    assert "lag 993 records" in running
    assert "983 records of them are settled already, the last at 999: the record at 7 holds" in afterwards
    assert "`anabranch consume orders -p 0 -o 7 -c 1`" in afterwards


def test_orders_are_billed_filtered_and_buried_in_order(run: Run) -> None:
    """Typed records in, receipts out under their keys, what cannot pass in the dead letters, the client closed."""
    lines = run("orders.py")
    explained = "\n".join(lines).partition("bank opened")[0]
    assert "pipeline billing (consumer group billing)" in explained
    rest = lines[lines.index("bank opened") + 1 :]
    assert rest[0] == "bank closed with {'ann': 770, 'bob': 210}"
    receipts = [line for line in rest if "total_cents" in line]
    assert [line for line in receipts if line.startswith("ann")] == [
        'ann: {"customer":"ann","cents":350,"total_cents":350}',
        'ann: {"customer":"ann","cents":420,"total_cents":770}',
    ]
    assert len(receipts) == 3
    assert sorted(line for line in rest if "villa" in line or '"item": "tea"' in line) == [
        'bob: {"customer": "bob", "item": "villa", "cents": 90000000}',
        'eve: {"customer": "eve", "item": "tea"}',
    ]


def test_the_other_examples_can_be_run_by_the_command_too() -> None:
    """Importing one starts nothing and prints nothing."""
    targets = ["retries:billing", "dead_letters:billing", "stuck_key:shipping", "orders:billing", "chat:chat"]
    code = f"from anabranch.cli.target import load_pipeline\nfor each in {targets}: print(load_pipeline(each).name)"
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, cwd=EXAMPLES)
    assert (done.stdout.split(), done.stderr) == (["billing", "billing", "shipping", "billing", "chat"], "")
