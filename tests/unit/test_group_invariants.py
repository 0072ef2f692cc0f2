"""Every invariant can fail: a group that is bent out of shape is noticed, with the sentence of the rule it breaks."""

from collections.abc import Callable

import pytest

from anabranch.broker.group.coordinator import Coordinator
from anabranch.broker.group.effects import ReplyLeave, Store
from anabranch.broker.group.events import Commit, CommitOffset, Event, Join, Stored, Sync
from anabranch.broker.group.machine import Group
from anabranch.broker.group.states import State
from anabranch.broker.group.storage import OffsetRecord
from anabranch.broker.group.timers import Kind, Timer
from anabranch.broker.wire.error_codes import ErrorCode

SESSION_OF_ANNA = Timer(Kind.SESSION, "g", "anna")


def step(coordinator: Coordinator, event: Event) -> None:
    for effect in coordinator.step(event, 0, 0):
        if isinstance(effect, Store):
            step(coordinator, Stored(effect.token, None))


def join(token: int, member_id: str, new: str, requires_member_id: bool = False) -> Join:
    protocols = (("range", b""),)
    return Join(
        token,
        "g",
        member_id,
        f"i-{new}" if new == "sam" else None,
        "",
        "",
        "consumer",
        protocols,
        10,
        30,
        requires_member_id,
        False,
        new,
    )


def stable() -> tuple[Coordinator, Group]:
    """A stable group of anna and the static sam, an id handed out to pat, and an offset."""
    coordinator = Coordinator()
    step(coordinator, join(1, "", "anna"))
    step(coordinator, join(2, "", "sam"))
    step(coordinator, join(3, "anna", ""))
    step(coordinator, Sync(4, "g", 2, "anna", None, None, None, (("anna", b"0"), ("sam", b"1"))))
    step(coordinator, Commit(5, "g", 2, "anna", None, (CommitOffset("orders", 0, 5, 0, None),)))
    step(coordinator, join(6, "", "pat", requires_member_id=True))
    coordinator.check_invariants()
    return coordinator, coordinator._groups["g"]


def preparing() -> tuple[Coordinator, Group]:
    """The same while bob waits to be let in."""
    coordinator, group = stable()
    step(coordinator, join(7, "", "bob"))
    coordinator.check_invariants()
    return coordinator, group


def completing() -> tuple[Coordinator, Group]:
    """Anna has been told her generation and not synced."""
    coordinator = Coordinator()
    step(coordinator, join(1, "", "anna"))
    coordinator.check_invariants()
    return coordinator, coordinator._groups["g"]


def bend(group: Group, **fields: object) -> None:
    for name, value in fields.items():
        setattr(group, name, value)


def bend_member(group: Group, **fields: object) -> None:
    for name, value in fields.items():
        setattr(group.roster.members["anna"], name, value)


WRONGS: list[tuple[Callable[[], tuple[Coordinator, Group]], str, Callable[[Group], object]]] = [
    (stable, "each instance id names", lambda group: group.roster.statics.clear()),
    (stable, "support counts", lambda group: group.roster.support.update(["range"])),
    (stable, "a member leads", lambda group: setattr(group.roster, "leader", "nobody")),
    (stable, "an id is handed out or used", lambda group: group.roster.pending.update(anna=None)),
    (
        stable,
        "ids handed out are bounded",
        lambda group: group.roster.pending.update({str(n): None for n in range(1001)}),
    ),
    (stable, "an id handed out expires", lambda group: group.turn.timers.cancel(Timer(Kind.PENDING, "g", "pat"))),
    (stable, "a dead group", lambda group: bend(group, state=State.DEAD)),
    (stable, "Empty is the state", lambda group: bend(group, state=State.EMPTY)),
    (stable, "Preparing ends", lambda group: group.turn.timers.set(Timer(Kind.REBALANCE, "g"), 1)),
    (preparing, "Preparing ends", lambda group: group.turn.timers.cancel(Timer(Kind.REBALANCE, "g"))),
    (completing, "Completing ends", lambda group: group.turn.timers.cancel(Timer(Kind.SYNC, "g"))),
    (completing, "no assignment yet", lambda group: bend_member(group, assignment=b"0")),
    (stable, "all know the protocol", lambda group: bend(group, protocol_name="sticky")),
    (preparing, "only a new generation is awaited", lambda group: group.syncing.add("anna")),
    (stable, "only members are awaited", lambda group: group.syncing.add("nobody")),
    (stable, "only Completing waits", lambda group: bend(group, assigning=1)),
    (completing, "the log will answer", lambda group: bend(group, assigning=99)),
    (stable, "a join waits in Preparing", lambda group: bend_member(group, join_token=9)),
    (stable, "a sync waits in Completing", lambda group: bend_member(group, sync_token=9)),
    (completing, "a waiting request is known", lambda group: bend_member(group, sync_token=9)),
    (stable, "has a session", lambda group: group.turn.timers.cancel(SESSION_OF_ANNA)),
    (stable, "what is committed was written", lambda group: group.offsets.written.clear()),
    (stable, "written later", lambda group: group.offsets.written.update({("orders", 0): (bytes(16), 0)})),
    (
        stable,
        "one topic id per name",
        lambda group: group.offsets.committed.update({("orders", 0): (OffsetRecord(5, 0, None, 0, None, b"x"), 2)}),
    ),
    (stable, "stored in the step that made it", lambda group: bend(group, is_unstored=True)),
    (stable, "a leave is answered", lambda group: bend(group, leaving=[ReplyLeave(1, ErrorCode.NONE)])),
    (stable, "held by one member", lambda group: group.turn.wait(9, "g", "anna")),
    (stable, "is on its way", lambda group: group.pending_stores.update({9: None})),
    (stable, "belongs to a group", lambda group: group.turn.timers.set(Timer(Kind.SYNC, "other"), 1)),
]


@pytest.mark.parametrize(("make", "sentence", "wrong"), WRONGS, ids=[sentence for _, sentence, _ in WRONGS])
def test_a_broken_rule_is_noticed(
    make: Callable[[], tuple[Coordinator, Group]], sentence: str, wrong: Callable[[Group], object]
) -> None:
    """A check that cannot fail proves nothing."""
    coordinator, group = make()
    wrong(group)
    with pytest.raises(AssertionError, match=sentence):
        coordinator.check_invariants()


def test_a_group_that_is_nothing_is_noticed() -> None:
    """Groups of random names must not pile up."""
    coordinator, group = completing()
    coordinator._groups["ghost"] = Group("ghost", group.options, group.turn)
    with pytest.raises(AssertionError, match="came to nothing"):
        coordinator.check_invariants()
