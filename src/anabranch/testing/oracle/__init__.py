"""Judges a run by its history, knowing nothing of the code that ran: digest, checkers, verdict.

`judge(read_history(folder)).line()` is what most callers want. Each checker is a function of the digested facts.
"""

from anabranch.testing.oracle.delivery import duplicated, lost, unknown
from anabranch.testing.oracle.facts import Facts, digest
from anabranch.testing.oracle.finding import Finding, Violation
from anabranch.testing.oracle.order import overlapping, reordered, skipped
from anabranch.testing.oracle.progress import committed_too_far, went_backwards
from anabranch.testing.oracle.verdict import CHECKERS, Verdict, judge

__all__ = [
    "CHECKERS",
    "Facts",
    "Finding",
    "Verdict",
    "Violation",
    "committed_too_far",
    "digest",
    "duplicated",
    "judge",
    "lost",
    "overlapping",
    "reordered",
    "skipped",
    "unknown",
    "went_backwards",
]
