"""Offsets of a group: who may commit, and what is forgotten when.

A commit counts when it comes from a member of the current generation while that may still own its partitions, or from
outside the protocol while nobody is in the group. It is durable before it is acknowledged and before it can be fetched.
"""

from anabranch.broker.group.effects import ReplyCommit
from anabranch.broker.group.events import Commit
from anabranch.broker.group.machine import Group
from anabranch.broker.group.offsets import is_too_long, record_of
from anabranch.broker.group.states import COMMIT_ANSWERS, State
from anabranch.broker.group.storage import OffsetRecord, TopicPartition
from anabranch.broker.group.stores import CommitStore, RemovalStore
from anabranch.broker.wire.error_codes import ErrorCode


def commit(group: Group, event: Commit) -> None:
    """Refuse a commit, or send what is right in it to the log."""
    error = _refusal(group, event)
    if error:
        group.turn.reply(refused(event, error))
        return
    if event.member_id in group.roster.members:
        group.touch(group.roster.members[event.member_id])
    records: dict[TopicPartition, OffsetRecord] = {}
    results: list[tuple[str, int, ErrorCode]] = []
    for offset in event.offsets:
        if is_too_long(offset.metadata, group.options.metadata_units_max):
            results.append((offset.topic, offset.partition, ErrorCode.OFFSET_METADATA_TOO_LARGE))
        else:
            records[offset.topic, offset.partition] = record_of(offset, group.turn.now_ms)
            results.append((offset.topic, offset.partition, ErrorCode.NONE))
    if records:
        group.turn.wait(event.token, group.group_id, None)
        entries = group.offsets.write(records, group.turn.next_store)
        group.store(entries, CommitStore(records, event.token, tuple(results)))
    else:
        group.turn.reply(ReplyCommit(event.token, ErrorCode.NONE, tuple(results)))


def refused(event: Commit, error: ErrorCode) -> ReplyCommit:
    """Give the answer to a commit that is refused as a whole."""
    return ReplyCommit(event.token, error, tuple((one.topic, one.partition, error) for one in event.offsets))


def _refusal(group: Group, event: Commit) -> ErrorCode:
    if event.generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    return group.refusal(event.member_id, event.instance_id, event.generation) or COMMIT_ANSWERS[group.state]


def forget_topics(group: Group, topics: frozenset[str]) -> None:
    """Drop the offsets of topics that are no more, those in flight included."""
    for pending in group.pending_stores.values():
        if isinstance(pending, CommitStore):
            pending.records = {where: record for where, record in pending.records.items() if where[0] not in topics}
    _drop(group, [where for where in group.offsets.written if where[0] in topics])


def cut_back(group: Group, log_ends: dict[TopicPartition, int]) -> None:
    """Cut positions that lie beyond the end of their log back to it."""
    records = group.offsets.beyond(log_ends)
    if records:
        sequence = group.turn.next_store
        group.store(group.offsets.write(records, sequence), CommitStore(records, None, ()))
        group.offsets.apply(records, sequence)


def expire_offsets(group: Group) -> None:
    """Drop what an empty group has kept long enough, and try again what could not be dropped before."""
    in_flight: set[TopicPartition] = set()
    for pending in group.pending_stores.values():
        if isinstance(pending, CommitStore):
            in_flight |= pending.records.keys()
        elif isinstance(pending, RemovalStore):
            in_flight |= pending.places
    left_over = group.offsets.written.keys() - group.offsets.committed.keys()
    _drop(group, sorted((left_over | set(_expired(group))) - in_flight))


def _expired(group: Group) -> list[TopicPartition]:
    retention_s = group.options.offsets_retention_s
    if retention_s is None or group.state is not State.EMPTY:
        return []
    before_ms = group.turn.now_ms - int(retention_s * 1000)
    return group.offsets.expired(before_ms) if group.changed_ms < before_ms else []


def _drop(group: Group, places: list[TopicPartition]) -> None:
    if places:
        entries = group.offsets.drop(places, group.turn.next_store)
        group.store(entries, RemovalStore(frozenset(places)))
