"""One pipeline file, handed from Spark to one process and back: what any engine leaves, any engine goes on with."""

from __future__ import annotations

import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from contract_pipelines import QUICK_CLIENT
from contract_world import eventually
from spark_world import ended

from anabranch import Broker
from anabranch.core.history import Begun, Settled
from anabranch.testing.history import HistoryWriter, read_history
from anabranch.testing.oracle import judge

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import chat
from chat_audit import Audit, Sent, audit_letters, audit_positions, audit_replies
from demo import committed, produce, read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

THIRD = 600
SESSIONS = 4
"""So few that there is time to stop: a message waits for the one before it. None of them is the stuck one."""
DONE, INCOMPLETE = 0, 5


class Traces(NamedTuple):
    """Records, by partition and offset."""

    begun: set[tuple[int, int]]
    delivered: set[tuple[int, int]]
    """The last step was begun: a reply may be out."""
    settled: set[tuple[int, int]]

    @property
    def in_flight(self) -> set[tuple[int, int]]:
        """Begun, and not settled."""
        return self.begun - self.settled


class Handover:
    """The chat of `examples/`, on one engine after another."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.histories = folder / "history"
        self._folder = folder
        self._read: set[str] = set()
        self._samples = chat.samples(3 * THIRD, SESSIONS)
        self.sent = Sent({})

    def send_a_third(self) -> None:
        """Send the next messages."""
        sent = produce(self.bootstrap, islice(self._samples, THIRD), self.histories)
        self.sent = Sent({**self.sent.places, **sent.places})

    def start(self, engine: str, **options: Any) -> Any:
        """Start the pipeline on an engine."""
        recorder: Any = partial(HistoryWriter, self.histories)
        return chat.chat.start(
            engine,
            bootstrap=self.bootstrap,
            state_dir=self._folder / "state",
            kafka=QUICK_CLIENT,
            recorder=recorder if engine == "spark" else recorder("async"),
            **options,
        )

    def traces(self) -> Traces:
        """Answer what the processes did that have recorded since the last question."""
        begun, delivered, settled = set(), set(), set()
        for batch in read_history(self.histories):
            if batch.process.name in self._read:
                continue
            begun |= {(each.partition, each.offset) for each in batch.events if isinstance(each, Begun)}
            delivered |= {
                (each.partition, each.offset)
                for each in batch.events
                if isinstance(each, Begun) and each.step == "deliver"
            }
            settled |= {(each.partition, each.offset) for each in batch.events if isinstance(each, Settled)}
        self._read |= {process.name for process in read_history(self.histories).processes}
        return Traces(begun, delivered, settled)


@pytest.fixture
def handover(tmp_path: Path) -> Iterator[Handover]:
    with Broker() as broker:
        yield Handover(broker.bootstrap, tmp_path)


def test_a_third_on_spark_a_third_in_one_process_and_the_rest_on_spark(handover: Handover) -> None:
    """Both stops cut calls off, so that there is something to repeat. Nothing is lost or reordered, and no more is
    repeated than was in flight at the stops, but for letters that had died ahead of something in flight: what a key
    repeats has no gaps.
    """
    runs = []
    for engine, options in (("spark", {"members": 2}), ("async", {})):
        handover.send_a_third()
        run = handover.start(engine, **options)
        eventually(lambda: run.statistics()["settled"] >= THIRD // 2, f"{engine} has its part")  # noqa: B023
        run.stop(drain_s=0.1)
        assert ended(run) in {DONE, INCOMPLETE}
        runs.append(handover.traces())
    handover.send_a_third()
    last = handover.start("spark", members=2, until="end")
    assert ended(last) == DONE
    runs.append(handover.traces())

    first, second, third = runs
    assert first.in_flight or second.in_flight, "something was cut off"
    assert not third.in_flight
    ahead = [died_ahead(handover, run) for run in (first, second)]
    assert first.begun & (second.begun | third.begun) <= first.in_flight | ahead[0]
    assert second.begun & third.begun <= second.in_flight | ahead[1]

    topics = Audit("topics")
    replies = read_topic(handover.bootstrap, chat.REPLIES)
    audit_replies(handover.sent, replies, topics)
    audit_letters(handover.sent, read_topic(handover.bootstrap, chat.DEAD), topics)
    audit_positions(handover.sent, committed(handover.bootstrap), topics)
    verdict = judge(read_history(handover.histories), records=3 * THIRD, duplicates_max=sum(map(len, ahead)))
    assert verdict.ok, verdict.report()
    assert topics.counts.keys() <= {"duplicates"}, topics.sentences
    unacknowledged = (first.delivered - first.settled) | (second.delivered - second.settled)
    assert twice(handover, replies) <= unacknowledged


def died_ahead(handover: Handover, run: Traces) -> set[tuple[int, int]]:
    """Answer the dead letters of a run that stand behind a record of their session that was in flight at its end."""
    sent = handover.sent.places
    starts: dict[str, tuple[int, int]] = {}
    for place in sorted(run.in_flight, reverse=True):
        starts[sent[place].session] = place
    died = [place for place in run.settled if sent[place].reply is None]
    return {place for place in died if place > starts.get(sent[place].session, place)}


def twice(handover: Handover, replies: list[Any]) -> set[tuple[int, int]]:
    """Answer the records that have more than one reply."""
    places = {(each.session, each.number): place for place, each in handover.sent.places.items()}
    answered = [msgspec.json.decode(each.value, type=chat.Reply) for each in replies]
    found = [places[each.session, each.number] for each in answered]
    return {each for each in found if found.count(each) > 1}
