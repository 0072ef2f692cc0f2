"""Checkers about positions: a commit never passes a record that is not settled, and never takes one back."""

from collections.abc import Iterator

from anabranch.testing.oracle.facts import Facts, PartitionFacts
from anabranch.testing.oracle.finding import Finding, Violation, breach, finding


def committed_too_far(facts: Facts) -> Finding:
    """Count commits above a record that exists and was not settled when the commit was recorded.

    Records that were sent only later count too: a position above the end of the log would skip them.
    """
    return finding("committed_too_far", _too_far(facts))


def went_backwards(facts: Facts) -> Finding:
    """Count commits below the position that their group had committed before."""
    return finding("went_backwards", _backwards(facts))


def _too_far(facts: Facts) -> Iterator[Violation]:
    for partition in facts.partitions.values():
        offsets = sorted(partition.keys)
        settled_below = 0
        for commit in partition.commits:
            settled_below = _advance(partition, offsets, settled_below, commit.at)
            if settled_below == len(offsets) or offsets[settled_below] >= commit.position:
                continue
            blocker = offsets[settled_below]
            sentence = (
                f"{commit.member} committed {commit.position} for {commit.group}, and offset {blocker} was not settled"
            )
            yield breach(partition, commit.at, (blocker,), sentence)


def _advance(partition: PartitionFacts, offsets: list[int], settled_below: int, at: int) -> int:
    while settled_below < len(offsets) and partition.settled_at(offsets[settled_below]) < at:
        settled_below += 1
    return settled_below


def _backwards(facts: Facts) -> Iterator[Violation]:
    for partition in facts.partitions.values():
        highest: dict[str, int] = {}
        for commit in partition.commits:
            before = highest.get(commit.group, -1)
            if commit.position < before:
                sentence = f"{commit.member} committed {commit.position} for {commit.group} after {before}"
                yield breach(partition, commit.at, (), sentence, late=commit.late)
            if not commit.late:
                highest[commit.group] = commit.position
