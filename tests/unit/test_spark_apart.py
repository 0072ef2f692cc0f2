"""Blocking calls on threads of their own: what they answer, and that none keeps a process alive."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from anabranch.spark.apart import call_apart

STUCK = """
import asyncio, threading
from anabranch.spark.apart import call_apart
async def main():
    begun = threading.Event()
    def stuck():
        begun.set()
        threading.Event().wait()
    call_apart(stuck)
    begun.wait()
asyncio.run(main())
print("out")
"""


def test_a_call_answers_or_raises_where_it_is_awaited() -> None:
    """As if it were made here."""

    async def calls() -> None:
        assert await call_apart(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await call_apart(divmod, 7, 0)

    asyncio.run(calls())


def test_a_call_that_never_returns_does_not_keep_the_process_from_ending() -> None:
    """A JVM that does not answer must not hold a run that was forced to end."""
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "out\n"
