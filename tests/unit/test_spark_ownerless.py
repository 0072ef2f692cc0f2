"""When partitions have no owner for too long, and who has to join anew."""

from __future__ import annotations

from anabranch.core.work import TopicPartition
from anabranch.kafka.owners import Owners
from anabranch.spark.ownerless import PATIENCE_S, STRANGERS_S, Ownerless

A, B, C, D = (TopicPartition("orders", number) for number in range(4))
GRACE_S = 5.0


def seen(*, unowned: set[TopicPartition], is_stable: bool = True, **owned: set[TopicPartition]) -> Owners:
    """Describe a group; `billing_0` is the member billing-0."""
    named = {name.replace("_", "-"): frozenset(partitions) for name, partitions in owned.items()}
    return Owners(is_stable, named, frozenset(unowned))


LOST = seen(unowned={A, B}, billing_0=set(), billing_1={C, D})


def test_the_member_with_the_least_to_lose_joins_anew_when_partitions_have_no_owner_for_a_while() -> None:
    """The second look is late enough; after it there is patience again, for the group to share out."""
    ownerless = Ownerless("billing", grace_s=GRACE_S)
    assert ownerless.look(LOST, {C, D}, 2, now=100.0) is None
    assert ownerless.look(LOST, {C, D}, 2, now=100.0 + PATIENCE_S) == 0
    assert ownerless.look(LOST, {C, D}, 2, now=100.1 + PATIENCE_S) is None


def test_what_passes_by_itself_is_waited_for() -> None:
    """A group that shares out, a partition that a member still drains, a place that is empty, and none without owner:
    each of them begins the wait anew.
    """
    sharing = seen(unowned={A, B}, is_stable=False, billing_0=set(), billing_1={C, D})
    draining = LOST, {A, B, C, D}
    empty = seen(unowned={A, B}, billing_1={C, D})
    well = seen(unowned=set(), billing_0={A, B}, billing_1={C, D})
    for owners, held in ((sharing, {C, D}), draining, (empty, {C, D}), (well, {C, D})):
        ownerless = Ownerless("billing", grace_s=GRACE_S)
        ownerless.look(LOST, {C, D}, 2, now=100.0)
        assert ownerless.look(owners, held, 2, now=102.0) is None
        assert ownerless.look(LOST, {C, D}, 2, now=104.0) is None
        assert ownerless.look(LOST, {C, D}, 2, now=107.0) == 0


def test_a_process_outside_of_the_run_may_drain_for_its_grace() -> None:
    """Nobody tells what it still holds, so the wait is longer with it in the group."""
    shared = seen(unowned={A, B}, billing_0={C}, somebody={D})
    ownerless = Ownerless("billing", grace_s=GRACE_S)
    assert ownerless.look(shared, {C}, 1, now=100.0) is None
    assert ownerless.look(shared, {C}, 1, now=100.0 + PATIENCE_S) is None
    assert ownerless.look(shared, {C}, 1, now=100.0 + GRACE_S + STRANGERS_S) == 0
