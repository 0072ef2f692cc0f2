"""Carryover in plain cases: what is written, what is believed, and every reason why not."""

import base64
import random
import zlib

import pytest

from anabranch.control.carryover import RUNS_MAX, TEXT_CHARACTERS_MAX, Carryover, decode, encode, topic_id_of
from anabranch.control.carryover_body import DATA_BYTES_MAX, Form, pack, unpack, varints
from anabranch.control.leader_epochs import Run
from anabranch.core.records import Record

TOPIC_ID = "8pZJ3wVzQ0S1u0qkq5mB2g"
RUNS = [Run(101, 105, 3), Run(107, 107, 3), Run(110, 150, 4)]


def read(
    text: str, *, topic_id: str = TOPIC_ID, position: int = 100, log_start: int = 0, log_end: int = 10**6
) -> Carryover:
    return decode(text, topic_id=topic_id, position=position, log_start=log_start, log_end=log_end)


def written(payload: bytes) -> str:
    """Forge a text with a right checksum."""
    whole = zlib.crc32(payload).to_bytes(4, "big") + payload
    return "anabranch:1:" + base64.urlsafe_b64encode(whole).decode().rstrip("=")


def payload(body: bytes, *, topic_id: str = TOPIC_ID, committable: int = 100) -> bytes:
    return bytes([len(topic_id)]) + topic_id.encode() + varints([committable, 1, 0, 4]) + body


def test_what_is_written_is_believed_by_the_next_owner() -> None:
    """Runs and their leader epochs come back exactly; the text is plain and short."""
    text = encode(RUNS, committable=100, topic_id=TOPIC_ID)
    assert text.startswith("anabranch:1:")
    assert text.isascii()
    assert len(text) < 80
    carryover = read(text)
    assert (carryover.runs, carryover.end, carryover.settled, carryover.reason) == (RUNS, 151, 47, "")


def test_nothing_settled_ahead_is_an_empty_text() -> None:
    """A commit always has metadata that works: the empty string when there is nothing to carry."""
    assert encode([], committable=100, topic_id=TOPIC_ID) == ""
    assert not read("")
    assert read("").reason == ""


def test_trailing_nuls_of_the_client_library_are_ignored() -> None:
    """The binding sends metadata with a NUL at its end and may give it back."""
    assert read(encode(RUNS, committable=100, topic_id=TOPIC_ID) + "\0").runs == RUNS
    assert read("\0\0").reason == ""


@pytest.mark.parametrize("text", ["hello", "{}", "NONE", "anabranch", "\x00x", "é" * 5000, "\ud800"])
def test_metadata_of_other_tools_is_no_carryover_and_no_error(text: str) -> None:
    """Whatever other tools write into their commits, nothing is skipped."""
    carryover = read(text)
    assert not carryover
    assert carryover.reason == "the commit metadata was written by another tool"


def test_a_settled_record_is_skipped_only_under_its_leader_epoch() -> None:
    """After a truncation the same offset is another record: it has another epoch. Unknown matches only unknown."""
    carryover = Carryover([*RUNS, Run(160, 160, -1)])
    assert carryover.covers(101, 3)
    assert carryover.covers(150, 4)
    assert carryover.covers(160, -1)
    assert not any(carryover.covers(*wrong) for wrong in [(101, 4), (101, -1), (150, 3), (160, 0), (106, 3), (151, 4)])
    assert not any(carryover.covers(*wrong) for wrong in [(100, 3), (0, -1), (161, -1), (10**15, 4)])


def test_a_batch_is_looked_up_at_once() -> None:
    """The batch form answers the same as one by one, over holes, ends and epochs."""
    carryover = Carryover(RUNS)
    for start in (0, 100, 104, 108, 150, 151, 400):
        for epoch in (3, 4):
            records = [Record("t", 0, offset, None, None, leader_epoch=epoch) for offset in range(start, start + 60, 2)]
            expected = [number for number, record in enumerate(records) if carryover.covers(record.offset, epoch)]
            assert carryover.covered(records) == expected
    assert carryover.covered([]) == []
    assert Carryover().covered([Record("t", 0, 0, None, None)]) == []


def test_what_has_not_been_read_yet_is_told_again() -> None:
    """The next commit must carry on what lies beyond the position, or a second crash would repeat it."""
    carryover = Carryover(RUNS)
    assert list(carryover.beyond(103)) == [Run(103, 105, 3), *RUNS[1:]]
    assert list(carryover.beyond(106)) == RUNS[1:]
    assert list(carryover.beyond(151)) == []
    both = [Run(101, 102, 3), *carryover.beyond(103)]
    assert read(encode(both, committable=100, topic_id=TOPIC_ID)).runs == RUNS


def test_a_run_may_begin_at_committable_itself() -> None:
    """All that was read is settled, and what comes next is known from the owner before."""
    text = encode([Run(100, 120, 1)], committable=100, topic_id=TOPIC_ID)
    assert read(text).runs == [Run(100, 120, 1)]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"topic_id": "another"}, "it is about the topic id"),
        ({"topic_id": ""}, "it is about the topic id"),
        ({"position": 99}, "reading begins at 99, below the position 100"),
        ({"log_end": 150}, "it tells of offset 150, and the log ends at 150"),
    ],
)
def test_a_text_that_does_not_fit_the_log_is_not_believed(found: dict[str, object], reason: str) -> None:
    """A topic made anew, a group set back, a log cut back: each is seen, and nothing is skipped."""
    carryover = read(encode(RUNS, committable=100, topic_id=TOPIC_ID), **found)  # type: ignore[arg-type]  # any of them
    assert not carryover
    assert carryover.reason.startswith(reason)


def test_retention_that_passed_the_committed_position_leaves_the_rest_believed() -> None:
    """Reading begins at the start of the log; what is settled above it stays settled."""
    text = encode(RUNS, committable=100, topic_id=TOPIC_ID)
    assert read(text, position=112, log_start=112).runs == [Run(112, 150, 4)]
    assert read(text, position=151, log_end=151).runs == []


def test_another_version_is_refused_by_name() -> None:
    """A newer writer may mean anything: not believed, and the reason says so."""
    text = encode(RUNS, committable=100, topic_id=TOPIC_ID).replace("anabranch:1:", "anabranch:2:")
    assert read(text).reason == f"its version {text[10:18]!r} is not known here"


def test_every_truncation_is_noticed() -> None:
    """A beginning of a text is not a text."""
    text = encode(RUNS, committable=100, topic_id=TOPIC_ID)
    assert not any(read(text[:length]) for length in range(len(text)))


def test_every_flipped_character_is_noticed() -> None:
    """One wrong character cannot pass, wherever it is."""
    text = encode(RUNS, committable=100, topic_id=TOPIC_ID)
    for at in range(len(text)):
        for other in "A9_=\x00":
            changed = text[:at] + other + text[at + 1 :]
            assert changed.rstrip("\0") == text or read(changed).runs in ([], RUNS)
            assert read(changed).runs == [] or base64_value(changed) == base64_value(text)


def base64_value(text: str) -> bytes:
    encoded = text.rstrip("\0").removeprefix("anabranch:1:")
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        (b"", "it is cut off"),
        (b"\xff" * 12, "it is cut off"),
        (b"\x02\xc3\x28\x00\x00", "its topic id is not text"),
        (bytes([0]) + varints([100, 65]) + bytes(130), "it has too many leader epochs"),
        (bytes([0]) + b"\xff" * 9 + b"\x01\x00", "a number is too long"),
        (payload(b"\x09"), "form 9 is not known"),
        (payload(b"\x00\x01"), "a run is empty or has no end"),
        (payload(b"\x00\x01\x00"), "a run is empty or has no end"),
        (payload(b"\x00\x01\x81"), "a number is cut off"),
        (payload(b"\x02garbage"), "it cannot be inflated"),
        (
            payload(bytes([Form.BITS_DEFLATED]) + zlib.compress(b"\xaa" * 100, wbits=-15)[:-1]),
            "it is too long or cut off",
        ),
        (
            payload(bytes([Form.BITS_DEFLATED]) + zlib.compress(b"\xaa" * 100, wbits=-15) + b"x"),
            "it is too long or cut off",
        ),
    ],
)
def test_forged_texts_with_a_right_checksum_are_refused(forged: bytes, reason: str) -> None:
    """The checksum keeps damage out, not malice: each field is checked for itself."""
    carryover = read(written(forged))
    assert not carryover
    assert carryover.reason == f"it is damaged: {reason}"


@pytest.mark.parametrize("form", [Form.RUNS_DEFLATED, Form.BITS_DEFLATED])
def test_a_compressed_bomb_is_refused_before_it_is_large(form: Form) -> None:
    """Three kilobytes can inflate to three megabytes: no more than the bound is inflated."""
    bomb = zlib.compress(b"\x01" * 2_500_000, 9, wbits=-15)
    text = written(payload(bytes([form]) + bomb))
    assert len(text) <= TEXT_CHARACTERS_MAX
    assert read(text).reason == "it is damaged: it is too long or cut off"


def test_a_text_beyond_the_limit_is_not_even_looked_at() -> None:
    """Kafka's limit may be raised by an operator; ours stays."""
    assert read("anabranch:1:" + "A" * TEXT_CHARACTERS_MAX).reason == "it is damaged: it is too long"


def test_runs_that_cannot_be_are_refused_without_walking_them() -> None:
    """A run of 2**62 offsets is two numbers, and beyond the end of any log."""
    text = written(payload(bytes([Form.RUNS]) + varints([1, 2**62, 1, 2**62])))
    assert "and the log ends at" in read(text).reason


@pytest.mark.parametrize(
    ("steps", "form"),
    [
        ([1, 1_000_000, 1, 70_000], Form.RUNS),
        ([1, 3, 2, 1, 1, 1, 4, 2] * 3, Form.BITS),
        ([1, 1] * 2000, Form.BITS_DEFLATED),
        ([1, 300, 2, 70] * 500, Form.RUNS_DEFLATED),
    ],
)
def test_the_smallest_form_is_chosen(steps: list[int], form: Form) -> None:
    """Long runs as numbers, dense patterns as bits, repeating ones deflated."""
    body = pack(steps, 3000)
    assert Form(body[0]) is form
    assert unpack(body) == steps


def test_a_window_of_twenty_three_thousand_offsets_always_fits() -> None:
    """As a plain bitset it needs no luck: nothing is left out, whatever the pattern."""
    steps = [step for step in random.Random(5).choices([1, 2, 3], k=11_000) if step]
    runs, end = [], 0
    for gap, length in zip(steps[::2], steps[1::2], strict=True):
        runs.append(Run(end + gap, end + gap + length - 1, 7))
        end += gap + length
    runs = [run for run in runs if run.last < 23_000]
    text = encode(runs, committable=0, topic_id=TOPIC_ID)
    assert len(text) <= TEXT_CHARACTERS_MAX
    assert read(text, position=0).runs == runs


def test_more_runs_than_are_looked_at_keep_the_nearest() -> None:
    """The time of a commit is bounded; knowledge is lost from the far end."""
    runs = [Run(offset, offset, 1) for offset in range(1, 4 * RUNS_MAX, 2)]
    assert read(encode(runs, committable=0, topic_id=TOPIC_ID), position=0).runs == runs[:RUNS_MAX]


def test_more_leader_epochs_than_fit_keep_the_nearest() -> None:
    """The table of epochs has a bound of its own."""
    runs = [Run(offset, offset, offset) for offset in range(1, 400, 2)]
    assert read(encode(runs, committable=0, topic_id=TOPIC_ID), position=0).runs == runs[:64]


def test_data_at_its_bound_is_still_read() -> None:
    """The reader takes all that the writer may write."""
    steps = [1, 7] * (DATA_BYTES_MAX // 2)
    body = pack(steps, 3000)
    assert sum(unpack(body)[1::2]) >= 7 * (DATA_BYTES_MAX // 2) - 7


def test_the_topic_that_a_text_is_about_can_be_asked_for() -> None:
    """Of whatever can be read, and of nothing else."""
    text = encode(RUNS, committable=100, topic_id=TOPIC_ID)
    assert topic_id_of(text + "\0") == TOPIC_ID
    assert [topic_id_of(other) for other in ("", "hello", text[:-2], text.replace(":1:", ":2:"))] == [""] * 4
