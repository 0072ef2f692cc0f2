"""The form of the suite: how far to go, where randomness comes from, and how a person can follow."""

import random
import sys
import zlib


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
