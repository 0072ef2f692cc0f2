"""The catalog on a store that crashes between any two operations: the old state or the new one, never a mixture."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from anabranch.broker.catalog import CATALOG, PRODUCER_ID_BLOCK, Catalog, TopicEntry
from anabranch.broker.log.errors import StorageFailed
from anabranch.core.errors import UsageError
from anabranch.testing.memory_store import Crashed, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

State = tuple[str, int, dict[str, TopicEntry]]


def _entry(name: str, partitions: int = 2, **configs: str) -> TopicEntry:
    return TopicEntry(name, "00" * 16, partitions, configs)


def _state(catalog: Catalog) -> State:
    catalog.check_invariants()
    return catalog.cluster_id, catalog.leader_epoch, dict(catalog.topics)


STEPS: tuple[Callable[[Catalog], object], ...] = (
    lambda catalog: catalog.raise_leader_epoch(),
    lambda catalog: catalog.put_topics(_entry("orders", **{"retention.ms": "1"}), _entry("payments")),
    lambda catalog: catalog.next_producer_id(),
    lambda catalog: catalog.raise_log_starts({"orders": {0: 5, 1: 7}, "gone": {0: 1}}),
    lambda catalog: catalog.put_topics(_entry("orders", 4)),
    lambda catalog: catalog.remove_topic("payments"),
    lambda catalog: catalog.raise_leader_epoch(),
)


def test_what_was_stored_is_read_again() -> None:
    """Cluster id, epoch, topics with configs and log starts: everything comes back from the file."""
    store = MemoryStore()
    catalog = Catalog(store)
    for step in STEPS:
        step(catalog)
    assert _state(Catalog(store)) == _state(catalog)
    assert catalog.leader_epoch == 2
    assert set(catalog.topics) == {"orders"}


def test_a_crash_between_any_two_operations_leaves_the_old_state_or_the_new() -> None:
    """Power is cut before each operation on the disk in turn: what is found is the state before or after the step."""
    operations = _operations_of_all_steps()
    assert operations > len(STEPS), "each change takes several operations, so there is something to crash between"
    for crash_at in range(operations + 1):
        for seed in range(5):
            store = MemoryStore()
            catalog = Catalog(store)
            catalog.raise_leader_epoch()
            store.crash_after(crash_at)
            allowed = _run_until_crash(catalog)
            store.crash(random.Random(seed))
            assert _state(Catalog(store)) in allowed, f"crash before operation {crash_at}, seed {seed}"


def _operations_of_all_steps() -> int:
    store = MemoryStore()
    catalog = Catalog(store)
    catalog.raise_leader_epoch()
    before = store.operations
    for step in STEPS:
        step(catalog)
    return store.operations - before


def _run_until_crash(catalog: Catalog) -> list[State]:
    """Give the state after the last step that returned and, if one was interrupted, the state it would have made."""
    reached = _state(catalog)
    for step in STEPS:
        try:
            step(catalog)
        except Crashed:
            return [reached, _after(step, reached, MemoryStore())]
        reached = _state(catalog)
    return [reached]


def _after(step: Callable[[Catalog], object], state: State, store: MemoryStore) -> State:
    """Give the state that a step makes of another, computed on a store that does not crash."""
    cluster_id, epoch, topics = state
    shadow = Catalog(store)
    for _ in range(epoch):
        shadow.raise_leader_epoch()
    if topics:
        shadow.put_topics(*topics.values())
    step(shadow)
    return cluster_id, shadow.leader_epoch, dict(shadow.topics)


@pytest.mark.parametrize("used", [1, PRODUCER_ID_BLOCK - 1, PRODUCER_ID_BLOCK, PRODUCER_ID_BLOCK + 1])
def test_producer_ids_never_come_twice(used: int) -> None:
    """Fault 18, "producer ids handed out twice after a restart": not after a clean stop, a kill or a power cut."""
    store = MemoryStore()
    given: list[int] = []
    for life in range(4):
        catalog = Catalog(store)
        given += [catalog.next_producer_id() for _ in range(used)]
        catalog.put_topics(_entry(f"topic-{life}"))
        given.append(catalog.next_producer_id())
        catalog.check_invariants()
        store.crash(random.Random(life))
    assert len(set(given)) == len(given)
    assert min(given) >= 0


def test_an_id_is_durable_as_used_before_it_is_given() -> None:
    """A crash at any operation of the first request: an id that came out of it never comes out again."""
    for crash_at in range(8):
        store = MemoryStore()
        given: list[int] = []
        store.crash_after(crash_at)
        with suppress(Crashed):
            given.append(Catalog(store).next_producer_id())
        store.crash(random.Random(crash_at))
        assert Catalog(store).next_producer_id() not in given


def test_a_change_that_cannot_be_stored_changes_nothing() -> None:
    """Disk full: the caller is told, the catalog is as before, and the next change works when there is room."""
    store = MemoryStore()
    catalog = Catalog(store)
    catalog.put_topics(_entry("orders"))
    before = _state(catalog)
    for failure in (store.fail_next_write, store.fail_next_sync):
        for step in (
            lambda: catalog.put_topics(_entry("payments")),
            lambda: catalog.remove_topic("orders"),
            catalog.raise_leader_epoch,
            catalog.next_producer_id,
        ):
            failure()
            with pytest.raises(StorageFailed):
                step()
            assert _state(catalog) == before
    assert catalog.next_producer_id() == 0
    catalog.put_topics(_entry("payments"))
    assert set(Catalog(store).topics) == {"orders", "payments"}


def test_an_unknown_format_version_is_refused_with_a_sentence() -> None:
    """A folder of a later broker is not touched: the message says which version it is and what to do."""
    store = MemoryStore()
    Catalog(store).raise_leader_epoch()
    stored = store.read_file(CATALOG)
    assert stored is not None
    newer = stored.replace(b'"version": 1', b'"version": 99')
    assert newer != stored
    store.replace_file(CATALOG, newer)
    with pytest.raises(UsageError, match="format version 99, this broker knows 1: use the broker that wrote it"):
        Catalog(store)
    assert store.read_file(CATALOG) == newer


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 1}', b"\xff\xfe", b'{"version": "1"}'])
def test_a_damaged_catalog_is_refused_with_a_sentence(damage: bytes) -> None:
    """It is never taken for an empty one: that would forget every topic."""
    store = MemoryStore()
    store.replace_file(CATALOG, damage)
    with pytest.raises(UsageError):
        Catalog(store)
    assert store.read_file(CATALOG) == damage
