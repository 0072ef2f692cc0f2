"""The form of the suite: how far to go, where randomness comes from, and how a person can follow."""

import os
import random
import sys
import zlib
from typing import Any

SEED_SHORT = 1
"""`make test` does the same each time."""


class Torture:
    """What one test is told."""

    def __init__(self, name: str, *, full: bool, seed: int) -> None:
        self.full = full
        self.seed = seed
        self.random = random.Random(zlib.crc32(name.encode()) ^ seed)

    def pick(self, short: int, full: int) -> int:
        """Answer the size of something in this form of the suite."""
        return full if self.full else short

    def say(self, line: str) -> None:
        """Tell what is done and what was seen; captured by pytest unless `-s` is given."""
        sys.stdout.write(f"  {line}\n")
        sys.stdout.flush()


def torture_of(request: Any) -> Torture:
    """Make what a test is told, from the options and the environment, and say what begins."""
    form = request.config.getoption("--torture", None) or os.environ.get("ANABRANCH_TORTURE", "short")
    full = form == "full"
    given = os.environ.get("ANABRANCH_TORTURE_SEED")
    seed = int(given) if given else random.SystemRandom().randrange(10**6) if full else SEED_SHORT
    made = Torture(request.node.name, full=full, seed=seed)
    first_line = request.function.__doc__.strip().splitlines()[0]
    made.say(f"\n{request.node.name} (ANABRANCH_TORTURE_SEED={seed})\n  {first_line}")
    return made
