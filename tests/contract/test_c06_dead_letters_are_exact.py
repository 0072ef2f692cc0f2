"""C6: a dead letter is the record byte for byte, with its cause; too many, or one that cannot be written, halt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from contract_pipelines import QUICK_RETRY, Step, build
from contract_world import Given

from anabranch import UsageError
from anabranch.core.history import Settled

if TYPE_CHECKING:
    from contract_runner import Runner
    from contract_world import Found, World

pytestmark = pytest.mark.promise("C6")

OURS = "anabranch."
HALTED = 4
THRICE = Step(retry={**QUICK_RETRY, "attempts": 3})


def own_headers(letter: Found) -> list[tuple[str, bytes | None]]:
    """Answer the headers that the record had."""
    return [(name, value) for name, value in letter.headers if not name.startswith(OURS)]


def told(letter: Found) -> dict[str, str]:
    """Answer what we added, by name."""
    return {name.removeprefix(OURS): (value or b"").decode() for name, value in letter.headers if name.startswith(OURS)}


def test_c6_a_letter_is_the_record_byte_for_byte(engine_runner: Runner, world: World) -> None:
    """Key, value (also null ones and bytes that are no text), headers in order, and timestamp are kept."""
    world.create()
    letters = world.create(topic=f"{world.topic}-dead")
    odd = [
        Given(b"a", b"\xff\x00 not JSON", headers=[("x", b"1"), ("x", b"2"), ("empty", b""), ("null", None)]),
        Given(b"b", None, headers=[("trace", b"\x00\xff")]),
        Given(None, b"[", timestamp_ms=1_234_567_890_123),
        Given(b"", b""),
        Given(b"c" * 1000, b"{" + b"y" * 100_000, timestamp_ms=1),
    ]
    world.send(odd)
    shape = engine_runner.shape(
        dead_letters={"topic": letters, "ratio_max": 1.0}, steps=(Step(handler="strict", retry=POISON),)
    )
    engine_runner.run(shape)
    source = world.read(world.topic)
    found = sorted(world.read(letters), key=lambda letter: int(told(letter)["offset"]))
    for record, letter in zip(source, found, strict=True):
        assert letter[2:4] == record[2:4]
        assert own_headers(letter) == record.headers
        assert letter.timestamp_ms == record.timestamp_ms
    assert world.positions() == {0: 5}
    assert world.accepts(records=5, duplicates_max=0).dead == 5


POISON = {**QUICK_RETRY, "attempts": 1}


def test_c6_a_letter_tells_origin_cause_and_attempts(engine_runner: Runner, world: World) -> None:
    """Who reads the letters knows where each came from, what happened, and how often it was tried."""
    world.create(partitions=2)
    letters = world.create(topic=f"{world.topic}-dead")
    world.send([Given(b"a"), Given(b"a", {"raise": "value_error"}), Given(b"b", {"raise": "poison"}, 1)])
    engine_runner.run(engine_runner.shape(dead_letters={"topic": letters, "ratio_max": 1.0}, steps=(THRICE,)))
    by_partition = {told(letter)["partition"]: told(letter) for letter in world.read(letters)}
    assert by_partition.keys() == {"0", "1"}
    tried, poison = by_partition["0"], by_partition["1"]
    assert (tried["topic"], tried["offset"], tried["group"]) == (world.topic, "1", world.group)
    assert (tried["attempts"], poison["attempts"]) == ("3", "1")
    assert tried["error"].endswith("ValueError")
    assert poison["error"].endswith("Poison")
    assert tried["message"] == "told to raise"
    assert tried["step"] == "obey"
    assert int(tried["timestamp"]) > 0


def test_c6_all_letters_of_a_key_are_in_one_partition_in_order(engine_runner: Runner, world: World) -> None:
    """Whoever reads the letters sees each key's in its order."""
    world.create(partitions=2)
    letters = world.create(partitions=3, topic=f"{world.topic}-dead")
    world.send([Given(b"key-%d" % (n % 8), {"raise": "poison"}, n % 2) for n in range(80)])
    engine_runner.run(engine_runner.shape(dead_letters={"topic": letters, "ratio_max": 1.0, "run_max": 1000}))
    places: dict[bytes | None, list[Found]] = {}
    for letter in world.read(letters):
        places.setdefault(letter.key, []).append(letter)
    assert len(places) == 8
    for found in places.values():
        assert len({letter.partition for letter in found}) == 1
        offsets = [int(told(letter)["offset"]) for letter in found]
        assert offsets == sorted(offsets)


def test_c6_without_dead_letters_a_record_that_would_die_halts(engine_runner: Runner, world: World) -> None:
    """It ends with code 4 and a sentence with the record, the cause and the fix; nothing past it is committed."""
    world.create()
    world.send([Given(b"a"), Given(b"a", {"raise": "poison"}), Given(b"a")])
    member = engine_runner.run(code=HALTED)
    said = member.said()
    assert ".dead_letters(" in said
    assert f"{world.topic}/0" in said
    assert "told to be poison" in said
    assert world.positions().get(0, 0) <= 1
    assert world.settled().keys() <= {(0, 0)}


@pytest.mark.parametrize(
    "limits",
    [{"run_max": 5, "ratio_max": 1.0}, {"ratio_max": 0.2, "window": 50, "run_max": 1000}],
    ids=["run", "ratio"],
)
def test_c6_too_many_letters_halt(engine_runner: Runner, world: World, limits: dict[str, Any]) -> None:
    """When records die in a row, or too many of the last ones, something else is wrong: halt, and drop nothing."""
    world.create()
    letters = world.create(topic=f"{world.topic}-dead")
    good = [Given(b"key-%d" % number) for number in range(50)]
    world.send([*good, *(Given(b"key-%d" % number, {"raise": "poison"}) for number in range(50))])
    shape = engine_runner.shape(dead_letters={"topic": letters, **limits}, steps=(Step(concurrency=1),))
    member = engine_runner.run(shape, code=HALTED)
    assert "dead letters" in member.said()
    dead = {event.offset for event in world.events(Settled) if event.how == "dead"}
    written = {int(told(letter)["offset"]) for letter in world.read(letters)}
    assert dead <= written
    assert 0 < len(written) < 30
    assert world.positions().get(0, 0) <= min({*range(50, 100)} - dead)
    verdict = world.verdict()
    assert verdict["committed_too_far"].count == 0, verdict.report()


def test_c6_a_letter_that_cannot_be_written_halts(engine_runner: Runner, world: World) -> None:
    """Fault 17. The letters' topic refuses the size: nothing is committed past the record; the sentence says why."""
    world.create()
    letters = world.create(topic=f"{world.topic}-dead", max_message_bytes="2000")
    world.send([Given(b"a"), Given(b"b", {"raise": "poison", "padding": "x" * 5000}), Given(b"c")])
    member = engine_runner.run(engine_runner.shape(dead_letters={"topic": letters, "ratio_max": 1.0}), code=HALTED)
    assert letters in member.said()
    assert (0, 1) not in world.settled()
    assert world.positions().get(0, 0) <= 1


def test_c6_a_letter_near_the_size_limit_fits_with_our_headers(engine_runner: Runner, world: World) -> None:
    """Fault 17. The letters' topic is made with room for a record of the source's largest size and our headers."""
    world.create(max_message_bytes="50000")
    letters = f"{world.topic}-dead"
    padding = "x" * 49_500
    world.send([Given(b"b", {"raise": "poison", "padding": padding}), Given(b"c")])
    engine_runner.run(engine_runner.shape(dead_letters={"topic": letters, "ratio_max": 1.0}))
    (letter,) = world.read(letters)
    assert padding.encode() in (letter.value or b"")


@pytest.mark.promise("C7")
def test_c7_parking_a_key_is_refused_as_not_yet_available(engine_runner: Runner) -> None:
    """The option is known and refused with a sentence, so that nobody believes it works."""
    shape = engine_runner.shape(dead_letters={"topic": "letters", "on_dead": "park"})
    with pytest.raises(UsageError, match="not yet available"):
        build(shape)
