"""The demo's verdict has teeth: whatever is lost, swapped, doubled, altered or invented turns it red."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from anabranch.core.history import Begun, Committed, Ended, Event, Sent, Settled
from anabranch.testing.history import History, MemoryHistory
from anabranch.testing.oracle import judge

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import chat
from chat_audit import Audit, Found, audit_letters, audit_positions, audit_replies, audit_table, joined
from chat_audit import Sent as SentMessages

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.testing.oracle import Verdict

RECORDS = 60
SESSIONS = 5
PARTITIONS = 2


@dataclass
class Outcome:
    """What came of a demo: all of it as it must be, until a test changes something."""

    sent: dict[tuple[int, int], chat.Sample] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    replies: list[Found] = field(default_factory=list)
    letters: list[Found] = field(default_factory=list)
    rows: list[chat.Reply] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    run: Audit = field(default_factory=lambda: Audit("run"))

    def verdict(self) -> Verdict:
        """Judge as the demo does."""
        history = MemoryHistory("member")
        history.record(self.events)
        sent, topics, table = SentMessages(self.sent), Audit("topics"), Audit("table")
        replies = audit_replies(sent, self.replies, topics)
        dead = audit_letters(sent, self.letters, topics)
        audit_positions(sent, self.positions, topics)
        audit_table(replies, self.rows, table)
        told = judge(History([history]), records=RECORDS, count_dead=True)
        return joined(told, [topics, table, self.run], dead)

    def of(self, session: str) -> list[int]:
        """Give the indices of the replies of a session."""
        return [index for index, each in enumerate(self.replies) if each.key == session.encode()]


@pytest.fixture
def outcome() -> Outcome:
    made = Outcome()
    for sample in chat.samples(RECORDS, SESSIONS):
        partition = int(sample.session[-1]) % PARTITIONS
        offset = made.positions.get(partition, 0)
        made.positions[partition] = offset + 1
        made.sent[partition, offset] = sample
        key = sample.session.encode()
        call = ("m", 1, chat.MESSAGES, partition, offset)
        made.events.append(Sent(chat.MESSAGES, partition, offset, key, sample.number))
        made.events += [Begun(*call, key, "ingest"), Ended(*call, key, "ingest")]
        made.events.append(Settled(*call, how="handled" if sample.reply else "dead"))
        if sample.reply is None:
            headers = {"anabranch.partition": b"%d" % partition, "anabranch.offset": b"%d" % offset}
            made.letters.append(Found(0, len(made.letters), key, sample.value, headers))
        else:
            reply = chat.Reply(sample.session, sample.number, "talk", sample.reply)
            made.replies.append(Found(partition, len(made.replies), key, msgspec.json.encode(reply), {}))
            made.rows.append(reply)
    made.events += [Committed("m", "chat", chat.MESSAGES, *each) for each in made.positions.items()]
    return made


def renumbered(replies: list[Found]) -> list[Found]:
    """Give the replies offsets in the order in which they stand."""
    return [each._replace(offset=offset) for offset, each in enumerate(replies)]


def test_a_run_without_fault_is_ok(outcome: Outcome) -> None:
    """All witnesses agree: the line is what scripts look for."""
    assert outcome.verdict().line() == "verdict: ok records=60 lost=0 reordered=0 duplicates=0 dead=3"


def test_a_reply_that_is_missing_is_lost(outcome: Outcome) -> None:
    """Though the history says that the message was handled."""
    missing = msgspec.json.decode(outcome.replies.pop(7).value, type=chat.Reply)
    outcome.rows.remove(missing)
    verdict = outcome.verdict()
    assert verdict.line() == "verdict: FAILED records=60 lost=1 reordered=0 duplicates=0 dead=3 first=lost"
    assert f"topics: message {missing.number} of {missing.session} has no reply" in verdict.report()


def test_two_replies_of_a_session_that_are_swapped_are_reordered(outcome: Outcome) -> None:
    """Nothing is missing, so only their order in the topic tells."""
    first, second = outcome.of("session-001")[3:5]
    replies = outcome.replies
    replies[first], replies[second] = replies[second], replies[first]
    outcome.replies = renumbered(replies)
    verdict = outcome.verdict()
    assert verdict.line() == "verdict: FAILED records=60 lost=0 reordered=1 duplicates=0 dead=3 first=reordered"


def test_replies_of_two_sessions_may_be_in_any_order(outcome: Outcome) -> None:
    """Only a session's own replies have an order: all of one, then all of the other."""
    outcome.replies = renumbered(sorted(outcome.replies, key=lambda each: each.key or b""))
    assert outcome.verdict().ok


def test_a_session_whose_replies_are_in_two_partitions_has_lost_its_order(outcome: Outcome) -> None:
    """Nobody who reads them can tell which came first."""
    last = outcome.of("session-002")[-1]
    outcome.replies[last] = outcome.replies[last]._replace(partition=1)
    assert outcome.verdict()["reordered"].count == 1


def test_repeated_replies_are_counted_and_fail_nothing(outcome: Outcome) -> None:
    """A crash repeats a suffix: the last two replies of a session come again, in order; the table has them twice."""
    again = outcome.of("session-003")[-2:]
    outcome.replies = renumbered([*outcome.replies, *(outcome.replies[each] for each in again)])
    outcome.rows += [outcome.rows[each] for each in again]
    assert outcome.verdict().line() == "verdict: ok records=60 lost=0 reordered=0 duplicates=2 dead=3"


def test_a_repetition_that_leaves_one_out_is_reordered(outcome: Outcome) -> None:
    """1 2 3 4, then 2 4: the reply to 3 was skipped the second time."""
    again = outcome.of("session-003")[1:4:2]
    outcome.replies = renumbered([*outcome.replies, *(outcome.replies[each] for each in again)])
    assert outcome.verdict()["reordered"].count == 1


def test_a_dead_letter_that_is_missing_is_lost(outcome: Outcome) -> None:
    """The history says that it was buried: the topic does not have it."""
    outcome.letters.pop()
    verdict = outcome.verdict()
    assert not verdict.ok
    assert verdict["lost"].count == 1
    assert verdict.dead == 2
    assert "members buried 3 messages, and 2 are in the dead letters" in verdict.report()


def altered_reply(outcome: Outcome) -> None:
    value = outcome.replies[4].value or b""
    outcome.replies[4] = outcome.replies[4]._replace(value=value[:-2] + b'?"}')
    outcome.rows[4] = replace(outcome.rows[4], text=outcome.rows[4].text[:-1] + "?")


def other_key(outcome: Outcome) -> None:
    outcome.replies[4] = outcome.replies[4]._replace(key=b"session-999")


def altered_letter(outcome: Outcome) -> None:
    outcome.letters[0] = outcome.letters[0]._replace(value=(outcome.letters[0].value or b"") + b" ")


def letter_of_a_good_message(outcome: Outcome) -> None:
    place = next(place for place, sample in outcome.sent.items() if sample.reply is not None)
    headers = {"anabranch.partition": b"%d" % place[0], "anabranch.offset": b"%d" % place[1]}
    outcome.letters.append(outcome.letters[0]._replace(offset=99, headers=headers))


def letter_without_origin(outcome: Outcome) -> None:
    outcome.letters.append(outcome.letters[0]._replace(offset=99, headers={}))


def invented_reply(outcome: Outcome) -> None:
    outcome.replies.append(Found(0, 999, b"session-000", b'{"session":"nobody","number":0,"intent":"","text":""}', {}))


def unreadable_reply(outcome: Outcome) -> None:
    outcome.replies.append(Found(0, 999, b"session-000", b"garbage", {}))


def reply_to_a_hopeless_message(outcome: Outcome) -> None:
    sample = next(sample for sample in outcome.sent.values() if sample.reply is None)
    reply = msgspec.json.encode(chat.Reply(sample.session, sample.number, "divide", "0"))
    outcome.replies.append(Found(0, 999, sample.session.encode(), reply, {}))


def row_is_missing(outcome: Outcome) -> None:
    outcome.rows.pop()


def row_of_nothing(outcome: Outcome) -> None:
    outcome.rows.append(chat.Reply("nobody", 0, "", ""))


def no_table(outcome: Outcome) -> None:
    outcome.rows.clear()


def not_settled(outcome: Outcome) -> None:
    outcome.events.remove(next(each for each in outcome.events if isinstance(each, Settled)))


def not_committed(outcome: Outcome) -> None:
    outcome.positions[1] -= 5


def committed_too_far(outcome: Outcome) -> None:
    outcome.positions[1] += 1


def nothing_recorded(outcome: Outcome) -> None:
    outcome.events.clear()


def sent_is_not_all(outcome: Outcome) -> None:
    outcome.events = [each for each in outcome.events if getattr(each, "offset", 0) != 3]


def run_failed(outcome: Outcome) -> None:
    outcome.run.note("unfinished", "it ended with exit code 4: halted")


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (altered_reply, {"wrong": 1}),
        (other_key, {"wrong": 1}),
        (altered_letter, {"wrong": 1}),
        (letter_of_a_good_message, {"unknown": 1}),
        (letter_without_origin, {"unknown": 1}),
        (invented_reply, {"unknown": 1}),
        (unreadable_reply, {"unknown": 1}),
        (reply_to_a_hopeless_message, {"unknown": 1}),
        (row_is_missing, {"lost": 1}),
        (row_of_nothing, {"unknown": 1}),
        (no_table, {"lost": 57}),
        (not_settled, {"lost": 1}),
        (not_committed, {"uncommitted": 5}),
        (committed_too_far, {"uncommitted": 1}),
        (nothing_recorded, {"missing": 60, "buried": 1}),
        (sent_is_not_all, {"missing": 2}),
        (run_failed, {"unfinished": 1}),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_fault_is_found(outcome: Outcome, fault: Callable[[Outcome], Any], found: dict[str, int]) -> None:
    """Each by itself makes the verdict fail, is counted, and has a sentence."""
    fault(outcome)
    verdict = outcome.verdict()
    assert not verdict.ok
    assert verdict.line().startswith("verdict: FAILED ")
    assert {each.checker: each.count for each in verdict.findings if each.count}.items() >= found.items()
    assert all(f"{name}: {count}, first: " in verdict.report() for name, count in found.items())


def test_the_messages_are_the_same_ones_each_time_and_all_kinds_are_among_them() -> None:
    """Of 500 sessions: one in ten fails in some step, a few are hopeless in three ways, numbers have no gap."""
    made = list(chat.samples(24_000))
    assert made[:100] == list(islice(chat.samples(24_000), 100))
    assert made[:100] != list(islice(chat.samples(24_000, seed=2), 100))
    numbers: dict[str, list[int]] = {}
    for sample in made:
        numbers.setdefault(sample.session, []).append(sample.number)
    assert len(numbers) == 500
    assert chat.STUCK in numbers
    assert all(each == list(range(len(each))) for each in numbers.values())
    hopeless = [sample.value for sample in made if sample.reply is None]
    assert len(hopeless) == 6
    assert sum(value.endswith(b'"   "}') for value in hopeless) == 2
    assert sum(b"/ 0?" in value for value in hopeless) == 2
    steps = ("ingest", "understand", "answer", "deliver")
    failing = [step for each in made for step in steps if chat.failures(each.session, each.number, step)]
    assert 0.09 < len(failing) / len(made) < 0.11
    assert all(failing.count(step) > 500 for step in steps)
