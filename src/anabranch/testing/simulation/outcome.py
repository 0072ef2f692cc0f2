"""What came of one simulated run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.testing.oracle import Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """The oracle's verdict, what was seen from outside, and how the run went."""

    seed: int
    told: str
    """The scenario in one line."""
    verdict: Verdict
    violations: tuple[str, ...]
    """What the checks from outside found, and why it did not end if it did not."""
    virtual_s: float
    steps: int
    skipped: int
    """Records that a carryover saved from being repeated."""
    late: int
    """Completions of old epochs."""

    @property
    def ok(self) -> bool:
        """Whether everything held."""
        return self.verdict.ok and not self.violations

    def line(self) -> str:
        """Tell it in one line."""
        state = "ok" if self.ok else "FAILED"
        return f"seed {self.seed} {state}: {self.told}; {self.verdict.line()}; skipped={self.skipped} late={self.late}"

    def report(self) -> str:
        """Tell all that is wrong, and how to see it again."""
        again = f"run it again: python -m anabranch.testing.simulation {self.seed}"
        return "\n".join([self.line(), *self.violations[:5], self.verdict.report(), again])
