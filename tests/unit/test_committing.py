"""Commits are sent by members only: with an empty id a static member would be fenced by its own JoinGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from anabranch.control.effects import Commit, Position
from anabranch.core.work import TopicPartition
from anabranch.kafka.committing import Committing, commit_now

if TYPE_CHECKING:
    from anabranch.control.events import CommitEnded

PARTITION = TopicPartition("orders", 0)
COMMIT = Commit({PARTITION: Position(7, 0, "")}, 1)


class Library:
    """The library's consumer, as far as commits use it."""

    def __init__(self) -> None:
        self.id = "member"
        self.commits: list[list[LibraryPartition]] = []

    def memberid(self) -> str:
        return self.id

    def commit(self, *, offsets: list[LibraryPartition], asynchronous: bool) -> list[LibraryPartition] | None:
        self.commits.append(offsets)
        return None if asynchronous else offsets


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.mark.parametrize("how", ["begin", "make"])
def test_a_commit_without_a_member_id_is_refused_and_not_sent(library: Library, how: str) -> None:
    """The refusal is the broker's own for somebody who is no member; the next commit of a member goes out again."""
    ended: list[CommitEnded] = []
    committing = Committing(cast("Consumer", library), ended.append)
    library.id = ""
    getattr(committing, how)(COMMIT)
    assert [(event.errors, event.fenced, event.number) for event in ended] == [
        ({PARTITION: "Broker: Unknown member"}, True, 1)
    ]
    assert not committing.in_flight
    assert library.commits == []
    library.id = "member, again"
    getattr(committing, how)(COMMIT)
    assert [each.offset for offsets in library.commits for each in offsets] == [7]


def test_what_is_in_flight_when_the_id_is_taken_away_is_not_sent_again(library: Library) -> None:
    """A revoke asks again for what is in flight: not as nobody."""
    ended: list[CommitEnded] = []
    committing = Committing(cast("Consumer", library), ended.append)
    committing.begin(COMMIT)
    library.id = ""
    committing.settle()
    assert [event.fenced for event in ended] == [True]
    assert len(library.commits) == 1


def test_positions_at_which_one_begins_are_stored_by_a_member_only(library: Library) -> None:
    """The proof of membership is asked of the coordinator, and not by somebody who knows that he is none."""
    library.id = ""
    given: Any = [LibraryPartition("orders", 0, 7)]
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        commit_now(cast("Consumer", library), given)
    assert library.commits == []
    library.id = "member"
    assert commit_now(cast("Consumer", library), given) == given
