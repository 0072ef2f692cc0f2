"""The statistics of all members as one answer, in the shape that a run in one process gives, plus `members`.

What counts events since the start (`COUNTERS`) must not fall when a member is started again: the last numbers of an
earlier start are kept and added. Everything else is how things are now, and is told by members that live. Numbers add
up, except for those where the largest is what matters; of texts the first that says something is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch.spark.supervision import Term

COUNTERS: Final = (
    "handled",
    "filtered",
    "dead",
    "settled",
    "retries",
    "skipped",
    "late",
    "unknown",
    "abandoned",
    "commits",
    "commits_refused",
    "lost_to_retention",
)
STEP_COUNTERS: Final = ("done", "failed", "retries", "breaker_opened")
_GAUGES: Final = ("commits_in_flight", "running", "held", "waiting", "bytes", "incomplete", "ahead", "fenced_calls")
_LARGEST: Final = frozenset({"unreachable_s", "since_s", "age_s"})
_BREAKERS: Final = ("open", "half-open", "closed")
"""The worst first."""
_NOBODY: Final = "no partition is assigned to this process"


def of_nobody(unopened: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Return the statistics of a run whose members are still to come."""
    nobody = MemberAccounts(0).merged([])
    return {**unopened, **nobody, "engine_name": "spark", "member": group, "members": {}, "queries": {}}


class MemberAccounts:
    """What each place has told, through all its starts."""

    def __init__(self, members: int) -> None:
        """Begin with nothing told."""
        self._terms: list[Term | None] = [None] * members
        self._last: list[Mapping[str, Any]] = [{}] * members
        self._before: list[dict[str, Any]] = [{} for _ in range(members)]
        self.starts = [0] * members

    def started(self, index: int, term: Term) -> None:
        """Take notice of a new start: what the one before had counted is kept."""
        if self._terms[index] == term:
            return
        self._terms[index] = term
        self._before[index] = _counted([self._before[index], self._last[index]])
        self._last[index] = {}
        self.starts[index] += 1

    def told(self, index: int, term: Term, statistics: Mapping[str, Any]) -> None:
        """Take what a member says about itself; an older start has nothing to say any more."""
        if self._terms[index] == term:
            self._last[index] = statistics

    def last(self, index: int) -> Mapping[str, Any]:
        """Return what the newest start of a place said last."""
        return self._last[index]

    def merged(self, alive: Iterable[int]) -> dict[str, Any]:
        """Return one answer: counters of all starts, the rest from the places that live."""
        living = [self._last[index] for index in alive if self._last[index]]
        counted = _counted([*self._before, *self._last])
        steps = _merged_steps(living, counted["steps"])
        lags = [each["true_lag"] for each in living if each.get("true_lag") is not None]
        return {
            **{name: counted[name] for name in COUNTERS},
            **{name: sum(each.get(name, 0) for each in living) for name in _GAUGES},
            "partitions": {name: told for each in living for name, told in sorted(each.get("partitions", {}).items())},
            "steps": steps,
            "true_lag": sum(lags) if lags else None,
            "halted": next((each["halted"] for each in living if each.get("halted")), ""),
            "stopping": any(each.get("stopping", False) for each in living),
            **{part: merged_values([each.get(part, {}) for each in living]) for part in ("engine", "source", "sink")},
            "why": _merged_why(living),
        }


def _counted(told: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up what only grows."""
    total: dict[str, Any] = {**dict.fromkeys(COUNTERS, 0), "steps": {}}
    for each in told:
        for name in COUNTERS:
            total[name] += each.get(name, 0)
        for step, numbers in each.get("steps", {}).items():
            counters = total["steps"].setdefault(step, dict.fromkeys(STEP_COUNTERS, 0))
            for name in STEP_COUNTERS:
                counters[name] += numbers.get(name, 0)
    return total


def _merged_steps(living: Iterable[Mapping[str, Any]], counted: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    steps: dict[str, Any] = {}
    for name in counted:
        told = [each["steps"][name] for each in living if name in each.get("steps", {})]
        if told:
            breakers = [each["breaker"] for each in told]
            worst = next((state for state in _BREAKERS if state in breakers), "closed")
            steps[name] = {**merged_values(told), "name": name, "breaker": worst, **counted[name]}
    return steps


def _merged_why(living: Iterable[Mapping[str, Any]]) -> list[str]:
    sentences = [sentence for each in living for sentence in each.get("why", ())]
    useful = [sentence for sentence in sentences if sentence != _NOBODY]
    return list(dict.fromkeys(useful or sentences))


def merged_values(told: list[Any]) -> Any:
    """Merge values of one meaning: add numbers up, join dicts and lists, take the first text that says something."""
    present = [each for each in told if each is not None]
    if not present:
        return {} if not told else None
    first = present[0]
    if isinstance(first, dict):
        names = dict.fromkeys(name for each in present for name in each)
        return {name: _merged_named(name, [each[name] for each in present if name in each]) for name in names}
    if isinstance(first, bool):
        return any(present)
    if isinstance(first, int | float):
        return sum(present)
    if isinstance(first, list):
        return [item for each in present for item in each]
    return next((each for each in present if each), first)


def _merged_named(name: str, told: list[Any]) -> Any:
    numbers = [each for each in told if isinstance(each, int | float)]
    return max(numbers) if name in _LARGEST and numbers else merged_values(told)
