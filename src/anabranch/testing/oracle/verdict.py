"""The verdict on a run: all checkers over one history, in one line or as a readable report."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from anabranch.testing.history import History
from anabranch.testing.oracle.delivery import duplicated, lost, unknown
from anabranch.testing.oracle.facts import Facts, digest
from anabranch.testing.oracle.finding import Finding, Violation, excerpts
from anabranch.testing.oracle.order import overlapping, reordered, skipped
from anabranch.testing.oracle.progress import committed_too_far, went_backwards

CHECKERS: tuple[Callable[[Facts], Finding], ...] = (
    lost,
    reordered,
    duplicated,
    skipped,
    overlapping,
    committed_too_far,
    went_backwards,
    unknown,
)
"""All of them, in the order in which a verdict tells them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the oracle says about a run."""

    records: int
    findings: tuple[Finding, ...]
    excerpts: tuple[tuple[str, ...], ...]
    """The events around each finding's first violation."""
    dead: int | None = None
    torn: int = 0
    duplicates_max: int | None = None

    def __getitem__(self, checker: str) -> Finding:
        """Give one checker's finding, by its name."""
        return next(finding for finding in self.findings if finding.checker == checker)

    @property
    def ok(self) -> bool:
        """True if every rule held. Repeats alone fail nothing, unless more than `duplicates_max`."""
        return not self._failed()

    @property
    def late(self) -> int:
        """What members did that had been frozen or cut off: counted apart, the limit of what a client can promise."""
        return sum(finding.late for finding in self.findings)

    def line(self) -> str:
        """Give the verdict in one line, which scripts may rely on: counters that are not named here may be appended."""
        counts = {finding.checker: finding.count for finding in self.findings}
        line = (
            f"verdict: {'ok' if self.ok else 'FAILED'} records={self.records} lost={counts.pop('lost')}"
            f" reordered={counts.pop('reordered')} duplicates={counts.pop('duplicated')}"
        )
        if self.dead is not None:
            line += f" dead={self.dead}"
        if failed := self._failed():
            line += f" first={min(failed, key=_place).checker}"
        counts["late"] = self.late
        return line + "".join(f" {name}={count}" for name, count in counts.items() if count)

    def report(self) -> str:
        """Tell each broken rule's first violation with the events around it."""
        lines = []
        for finding, events in zip(self.findings, self.excerpts, strict=True):
            if finding.first is not None:
                lines.append(f"{finding.checker}: {finding.count}, first: {finding.first.sentence}")
                lines.extend(f"  {event}" for event in events)
        if self.torn:
            lines.append(f"{self.torn} files end in a torn frame: their processes were killed while they wrote it")
        return "\n".join([*lines, self.line()])

    def _failed(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.count > self._allowed(finding)]

    def _allowed(self, finding: Finding) -> float:
        if finding.checker != "duplicated":
            return 0
        return float("inf") if self.duplicates_max is None else self.duplicates_max


def judge(
    history: History,
    *,
    records: int | None = None,
    duplicates_max: int | None = None,
    frozen: Collection[str] = (),
    killed: Mapping[int, int] | None = None,
    starts: Mapping[tuple[str, int], int] | None = None,
    count_dead: bool = False,
) -> Verdict:
    """Judge a run by its history, which is read twice at most.

    `records`: how many must have been acknowledged, so that an empty history cannot pass for a good one. `count_dead`:
    tell the number of dead letters even if there are none. `frozen`, `killed` and `starts` are those of `digest`.
    """
    facts = digest(history, frozen=frozen, killed=killed, starts=starts)
    findings = [checker(facts) for checker in CHECKERS]
    if records is not None and facts.records != records:
        sentence = f"{facts.records} records were acknowledged and {records} were to be"
        findings.append(
            Finding("missing", abs(records - facts.records), Violation(facts.end, "", None, (), None, sentence))
        )
    dead = _dead(facts)
    return Verdict(
        records=facts.records,
        findings=tuple(findings),
        excerpts=excerpts(history, [finding.first for finding in findings]),
        dead=dead if dead or count_dead else None,
        torn=facts.torn,
        duplicates_max=duplicates_max,
    )


def _dead(facts: Facts) -> int:
    return sum(
        any(settlement.how == "dead" for settlement in settlements)
        for partition in facts.partitions.values()
        for settlements in partition.settlements.values()
    )


def _place(finding: Finding) -> int:
    assert finding.first is not None, "a finding with a count has a first violation"
    return finding.first.at
