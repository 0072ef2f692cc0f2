"""Each checker on a clean history and on doctored ones: every mutant must turn exactly its rule red."""

from collections.abc import Callable

import pytest

from anabranch.core.history import Begun, Committed, Ended, Event, How, Outcome, Sent, Settled
from anabranch.testing.history import History, MemoryHistory
from anabranch.testing.oracle import Verdict, judge

Script = list[tuple[str, Event]]
"""Who recorded what, in the order of time."""


def history_of(script: Script) -> History:
    parts: dict[str, MemoryHistory] = {}
    for now_ns, (member, event) in enumerate(script):
        part = parts.setdefault(member, MemoryHistory(member, pid=100 + len(parts)))
        part.now_ns = now_ns
        part.record([event])
    return History(parts.values())


def sent(offset: int, key: bytes | None = b"alice", sequence: int | None = None) -> tuple[str, Event]:
    return "producer", Sent("orders", 0, offset, key, sequence)


def begun(
    member: str, offset: int, *, epoch: int = 1, step: str = "charge", attempt: int = 1, key: bytes | None = b"alice"
) -> tuple[str, Event]:
    return member, Begun(member, epoch, "orders", 0, offset, key, step, attempt)


def ended(
    member: str,
    offset: int,
    *,
    epoch: int = 1,
    step: str = "charge",
    attempt: int = 1,
    key: bytes | None = b"alice",
    outcome: Outcome = "done",
) -> tuple[str, Event]:
    return member, Ended(member, epoch, "orders", 0, offset, key, step, attempt, outcome)


def settled(member: str, offset: int, *, epoch: int = 1, how: How = "handled") -> tuple[str, Event]:
    return member, Settled(member, epoch, "orders", 0, offset, how)


def committed(member: str, position: int, group: str = "billing") -> tuple[str, Event]:
    return member, Committed(member, group, "orders", 0, position)


def ran(member: str, offset: int, *, epoch: int = 1, key: bytes | None = b"alice") -> Script:
    return [
        begun(member, offset, epoch=epoch, key=key),
        ended(member, offset, epoch=epoch, key=key),
        settled(member, offset, epoch=epoch),
    ]


def broken(verdict: Verdict) -> dict[str, int]:
    return {finding.checker: finding.count for finding in verdict.findings if finding.count}


CLEAN: Script = [
    sent(0),
    sent(1),
    sent(2),
    *ran("a", 0),
    *ran("a", 1),
    committed("a", 2),
    *ran("a", 2),
    committed("a", 3),
]

CLEAN_ONES: dict[str, Script] = {
    "a plain run": CLEAN,
    "nothing at all": [],
    "a retry": [
        sent(0),
        begun("a", 0),
        ended("a", 0, outcome="failed"),
        begun("a", 0, attempt=2),
        ended("a", 0, attempt=2),
        settled("a", 0),
    ],
    "a crash repeats a suffix": [
        *(sent(n) for n in range(3)),
        *ran("a", 0),
        *ran("a", 1),
        committed("a", 1),
        begun("a", 2),
        *ran("b", 1),
        *ran("b", 2),
        committed("b", 3),
    ],
    "knowledge of what is settled ahead spares the next owner the repeat": [
        *(sent(n) for n in range(3)),
        *ran("a", 0),
        *ran("a", 1),
        *ran("b", 2),
    ],
    "back with its old owner in a new epoch": [
        *(sent(n) for n in range(3)),
        *ran("a", 0),
        *ran("b", 1),
        *ran("a", 0, epoch=2),
        *ran("a", 1, epoch=2),
        *ran("a", 2, epoch=2),
    ],
    "a dead letter lets the key go on": [
        sent(0),
        sent(1),
        begun("a", 0),
        ended("a", 0, outcome="failed"),
        settled("a", 0, how="dead"),
        *ran("a", 1),
    ],
    "filtered records have no call and may settle ahead": [
        *(sent(n) for n in range(3)),
        settled("a", 1, how="filtered"),
        *ran("a", 0),
        *ran("a", 2),
    ],
    "a filter between two steps": [
        *(sent(n) for n in range(2)),
        begun("a", 0, step="one"),
        ended("a", 0, step="one"),
        settled("a", 0, how="filtered"),
        begun("a", 1, step="one"),
        ended("a", 1, step="one"),
        begun("a", 1, step="two"),
        ended("a", 1, step="two"),
        settled("a", 1),
    ],
    "n+1 in step one while n is in step two": [
        *(sent(n) for n in range(2)),
        begun("a", 0, step="one"),
        ended("a", 0, step="one"),
        begun("a", 0, step="two"),
        begun("a", 1, step="one"),
        ended("a", 1, step="one"),
        ended("a", 0, step="two"),
        settled("a", 0),
        begun("a", 1, step="two"),
        ended("a", 1, step="two"),
        settled("a", 1),
    ],
    "children run one after another in their parent's lane": [
        sent(0),
        *[begun("a", 0), ended("a", 0)] * 3,
        settled("a", 0),
    ],
    "records without a key have no order": [
        *(sent(n, key=None) for n in range(2)),
        begun("a", 1, key=None),
        begun("a", 0, key=None),
        ended("a", 0, key=None),
        ended("a", 1, key=None),
        settled("a", 1),
        settled("a", 0),
        committed("a", 2),
    ],
    "other keys of the partition": [
        sent(0, b"alice"),
        sent(1, b"bob"),
        begun("a", 1, key=b"bob"),
        begun("a", 0),
        ended("a", 0),
        ended("a", 1, key=b"bob"),
        settled("a", 1),
        settled("a", 0),
    ],
    "holes": [sent(3), sent(17), *ran("a", 3), *ran("a", 17), committed("a", 25)],
    "an unacknowledged record that is there all the same": [
        ("producer", Sent("orders", None, None, b"alice")),
        *ran("a", 0),
    ],
    "consumed before the sender heard of it": [*ran("a", 0), committed("a", 1), sent(0)],
    "two groups, each with its own position": [*CLEAN, committed("b", 1, group="audit")],
    "a run that orders by partition, and tells it": [
        sent(0, b"alice"),
        sent(1, b"bob"),
        sent(2, None),
        *ran("a", 0, key=b""),
        *ran("a", 1, key=b""),
        *ran("a", 2, key=b""),
    ],
    "a run that tells other names for the keys": [
        sent(0, b"alice"),
        sent(1, b"bob"),
        sent(2, b"alice"),
        begun("a", 1, key=b"2"),
        *ran("a", 0, key=b"1"),
        *ran("a", 2, key=b"1"),
        ended("a", 1, key=b"2"),
        settled("a", 1),
    ],
}

MUTANTS: dict[str, tuple[Script, dict[str, int]]] = {
    "acknowledged and never settled": ([*CLEAN, sent(3, b"bob")], {"lost": 1}),
    "one offset acknowledged twice": ([*CLEAN, sent(2, b"bob")], {"lost": 1}),
    "a retry dropped: a failed call taken for a handled record": (
        [sent(0), begun("a", 0), ended("a", 0, outcome="failed"), settled("a", 0)],
        {"lost": 1},
    ),
    "a retry dropped in the second step": (
        [
            sent(0),
            begun("a", 0, step="one"),
            ended("a", 0, step="one"),
            begun("a", 0, step="two"),
            ended("a", 0, step="two", outcome="failed"),
            settled("a", 0),
        ],
        {"lost": 1},
    ),
    "settled while its call still runs": (
        [sent(0), begun("a", 0), settled("a", 0), committed("a", 1), ended("a", 0)],
        {"lost": 1},
    ),
    "a record left out for good": (
        [*(sent(n) for n in range(3)), *ran("a", 0), *ran("a", 2)],
        {"lost": 1, "skipped": 1},
    ),
    "a new owner starts behind a record that no one began": (
        [*(sent(n) for n in range(3)), *ran("a", 0), *ran("b", 2), *ran("c", 1), *ran("c", 2)],
        {"skipped": 1, "reordered": 1, "duplicated": 1},
    ),
    "handled without calls before an earlier one": (
        [sent(0), sent(1), settled("a", 1), settled("a", 0)],
        {"skipped": 1},
    ),
    "two records swapped": ([sent(0), sent(1), *ran("a", 1), *ran("a", 0)], {"skipped": 1, "reordered": 1}),
    "back again in the same epoch": ([*CLEAN, *ran("a", 1)], {"reordered": 1, "duplicated": 1}),
    "the next one begun while a failed one waits for its retry": (
        [
            sent(0),
            sent(1),
            begun("a", 0),
            ended("a", 0, outcome="failed"),
            *ran("a", 1),
            begun("b", 0),
            ended("b", 0),
            settled("b", 0),
        ],
        {"reordered": 1},
    ),
    "a new owner does not repeat what was begun and not settled": (
        [sent(0), sent(1), begun("a", 0), *ran("b", 1), *ran("c", 0), *ran("c", 1)],
        {"reordered": 1, "duplicated": 1},
    ),
    "a replay with a gap": (
        [
            *(sent(n) for n in range(4)),
            *ran("a", 0),
            *ran("a", 1),
            *ran("a", 2),
            *ran("b", 0),
            *ran("b", 2),
            *ran("b", 3),
        ],
        {"reordered": 1, "duplicated": 2},
    ),
    "the log holds a key out of sending order": (
        [sent(0, sequence=0), sent(1, sequence=2), sent(2, sequence=1), *ran("a", 0), *ran("a", 1), *ran("a", 2)],
        {"reordered": 1},
    ),
    "two at once in one member": (
        [
            sent(0),
            sent(1),
            begun("a", 0),
            begun("a", 1),
            ended("a", 0),
            ended("a", 1),
            settled("a", 0),
            settled("a", 1),
        ],
        {"overlapping": 1},
    ),
    "one record twice at once in two members": (
        [sent(0), begun("a", 0), begun("b", 0), ended("a", 0), ended("b", 0), settled("b", 0)],
        {"overlapping": 1},
    ),
    "the next attempt begins though the last has not ended": (
        [
            sent(0),
            begun("a", 0),
            begun("a", 0, attempt=2),
            ended("a", 0, attempt=2),
            ended("a", 0, outcome="failed"),
            settled("a", 0),
        ],
        {"overlapping": 1},
    ),
    "a call that never ends in a process that lives on": (
        [sent(0), begun("a", 0), begun("a", 0), ended("a", 0), settled("a", 0), committed("a", 1)],
        {"overlapping": 1},
    ),
    "two at once, told as records of different keys": (
        [
            sent(0),
            sent(1),
            begun("a", 0, key=b"0"),
            begun("a", 1, key=b"1"),
            ended("a", 0, key=b"0"),
            ended("a", 1, key=b"1"),
            settled("a", 0),
            settled("a", 1),
        ],
        {"overlapping": 1},
    ),
    "two records swapped, told as records without order": (
        [sent(0), sent(1), *ran("a", 1, key=None), *ran("a", 0, key=None)],
        {"skipped": 1, "reordered": 1},
    ),
    "two records swapped, told as records of different keys": (
        [sent(0), sent(1), *ran("a", 1, key=b"1"), *ran("a", 0, key=b"0")],
        {"skipped": 1, "reordered": 1},
    ),
    "a failed one passed, told as one of another key": (
        [
            sent(0),
            sent(1),
            begun("a", 0, key=b"bob"),
            ended("a", 0, key=b"bob", outcome="failed"),
            *ran("a", 1),
            *ran("b", 0),
        ],
        {"reordered": 1},
    ),
    "a lie that the sender's word comes after": (
        [*ran("a", 1, key=None), *ran("a", 0, key=None), sent(0), sent(1)],
        {"skipped": 1, "reordered": 1},
    ),
    "swapped, and nobody told of a sending but the run": (
        [("producer", Sent("orders", None, None, None))] * 2 + [*ran("a", 1), *ran("a", 0)],
        {"skipped": 1, "reordered": 1},
    ),
    "a run that claims to order by partition, and does not": (
        [
            sent(0, b"alice"),
            sent(1, b"bob"),
            begun("a", 1, key=b""),
            begun("a", 0, key=b""),
            ended("a", 0, key=b""),
            ended("a", 1, key=b""),
            settled("a", 1),
            settled("a", 0),
        ],
        {"skipped": 1, "reordered": 1, "overlapping": 1},
    ),
    "a commit above a record that still runs": (
        [
            sent(0),
            sent(1, b"bob"),
            begun("a", 0),
            *ran("a", 1, key=b"bob"),
            committed("a", 2),
            ended("a", 0),
            settled("a", 0),
        ],
        {"committed_too_far": 1},
    ),
    "a commit above the end of the log": ([*CLEAN, committed("a", 9), sent(3), *ran("a", 3)], {"committed_too_far": 1}),
    "a commit that takes back": ([*CLEAN, committed("b", 1)], {"went_backwards": 1}),
    "settled twice": ([*CLEAN, settled("a", 2)], {"duplicated": 1}),
    "settled and never sent": ([*CLEAN, *ran("a", 3)], {"unknown": 1}),
    "ended and never begun": ([*CLEAN, ended("a", 2, attempt=2)], {"unknown": 1}),
}


@pytest.mark.parametrize("script", CLEAN_ONES.values(), ids=CLEAN_ONES)
def test_a_history_that_keeps_the_rules_is_ok(script: Script) -> None:
    """No checker cries wolf: repeats after a crash are the only thing counted here."""
    verdict = judge(history_of(script))
    assert verdict.ok
    assert set(broken(verdict)) <= {"duplicated"}


@pytest.mark.parametrize(("script", "expected"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_turns_its_checker_red(script: Script, expected: dict[str, int]) -> None:
    """A doctored history breaks the rules that it was doctored to break, and no others."""
    verdict = judge(history_of(script))
    assert broken(verdict) == expected, verdict.report()
    assert verdict.ok == (set(expected) == {"duplicated"})


def test_a_killed_process_ends_its_calls_where_it_was_last_heard_of() -> None:
    """Without a time of death the benefit of the doubt; with one, a call of the living overlaps."""
    script = [sent(0), begun("a", 0), begun("b", 0), ended("b", 0), settled("b", 0)]
    assert judge(history_of(script)).ok
    assert judge(history_of(script), killed={101: 1}).ok
    assert broken(judge(history_of(script), killed={101: 2})) == {"overlapping": 1}


@pytest.mark.parametrize("named", ["a", "a-101"])
def test_calls_of_a_frozen_member_are_counted_apart(named: str) -> None:
    """A thawed member ends a call, begins one more and commits before it hears that it is fenced: late, not broken."""
    script = [
        *(sent(n) for n in range(3)),
        begun("a", 0),
        *ran("b", 0),
        *ran("b", 1),
        committed("b", 2),
        ended("a", 0),
        begun("a", 2),
        begun("b", 2),
        ended("a", 2),
        ended("b", 2),
        settled("b", 2),
        committed("a", 0),
    ]
    assert broken(judge(history_of(script))) == {"reordered": 1, "overlapping": 3, "went_backwards": 1}
    verdict = judge(history_of(script), frozen={named})
    assert verdict.ok
    assert verdict.late == 5
    assert verdict.line() == "verdict: ok records=3 lost=0 reordered=0 duplicates=0 late=5"


def test_a_frozen_member_may_not_commit_too_far() -> None:
    """Nothing of what a frozen member did is committed: this is never counted apart."""
    script = [sent(0), begun("a", 0), committed("a", 1), ended("a", 0), settled("b", 0)]
    assert broken(judge(history_of(script), frozen={"a"})) == {"committed_too_far": 1}


def test_records_before_the_start_are_none_of_ours() -> None:
    """With `latest` or retention a group begins above the first offset; what lies below is neither lost nor skipped."""
    script = [*(sent(n) for n in range(3)), *ran("a", 2), committed("a", 3)]
    assert broken(judge(history_of(script))) == {"lost": 2, "skipped": 1, "committed_too_far": 1}
    verdict = judge(history_of(script), starts={("orders", 0): 2})
    assert verdict.ok
    assert verdict.records == 1


def test_each_checker_has_a_mutant() -> None:
    """A checker that nothing can turn red would prove nothing."""
    red = {name for _, expected in MUTANTS.values() for name in expected}
    assert red == {finding.checker for finding in judge(history_of([])).findings}


def _mutants_of_one_event() -> list[tuple[str, Callable[[Script], Script], str]]:
    def without(kind: type[Event], offset: int) -> Callable[[Script], Script]:
        return lambda script: [
            (member, event)
            for member, event in script
            if not (isinstance(event, kind) and getattr(event, "offset", None) == offset)
        ]

    return [
        ("no Settled", without(Settled, 1), "lost"),
        ("no Sent", without(Sent, 1), "unknown"),
        ("no Begun", without(Begun, 1), "unknown"),
    ]


@pytest.mark.parametrize(("name", "mutate", "checker"), _mutants_of_one_event())
def test_a_missing_event_is_noticed(name: str, mutate: Callable[[Script], Script], checker: str) -> None:
    """Whatever a recorder forgets to tell shows up somewhere."""
    assert judge(history_of(mutate(CLEAN)))[checker].count == 1, name
