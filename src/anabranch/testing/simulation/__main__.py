"""`python -m anabranch.testing.simulation SEED…`: play seeds again; `A-B` plays a range."""

import sys
import time

from anabranch.testing.simulation.play import simulate
from anabranch.testing.simulation.scenario import draw


def main(arguments: list[str]) -> int:
    """Play each seed; tell a single one in full, of many only what failed."""
    if not arguments:
        sys.stderr.write("usage: python -m anabranch.testing.simulation SEED…   (a range is written 0-999)\n")
        return 2
    seeds = [seed for argument in arguments for seed in _seeds(argument)]
    begun = time.monotonic()
    failed = steps = 0
    for seed in seeds:
        outcome = simulate(draw(seed))
        failed += not outcome.ok
        steps += outcome.steps
        if len(seeds) == 1 or not outcome.ok:
            sys.stdout.write((outcome.line() if outcome.ok else outcome.report()) + "\n")
    elapsed_s = time.monotonic() - begun
    rate = 60 * len(seeds) / elapsed_s
    sys.stdout.write(f"{len(seeds)} runs, {failed} failed, {steps:,} steps, {rate:,.0f} runs a minute\n")
    return 1 if failed else 0


def _seeds(argument: str) -> range:
    first, _, last = argument.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
