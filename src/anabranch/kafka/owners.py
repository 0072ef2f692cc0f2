"""Who owns the partitions of a group, as its coordinator knows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.core.work import TopicPartition
from anabranch.kafka.groups import describe_members

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch.kafka.admin import Admin


@dataclass(frozen=True, slots=True)
class Owners:
    """A group and its topics, seen at one time."""

    is_stable: bool
    """It does not share its partitions out just now."""
    owned: Mapping[str, frozenset[TopicPartition]]
    """By member: the name of a static one, the id of another."""
    unowned: frozenset[TopicPartition]


def find_owners(admin: Admin, group: str, topics: Sequence[str], pattern: str | None) -> Owners:
    """Ask for the members of a group, and for the partitions that it reads."""
    state, members = describe_members(admin, group)
    owned = {
        each.instance or each.name: frozenset(TopicPartition(*part) for part in each.partitions) for each in members
    }
    known = {topic.name: topic.partitions for topic in admin.topics() if not topic.internal}
    names = [name for name in known if re.search(pattern, name)] if pattern is not None else topics
    read = {TopicPartition(name, number) for name in names for number in range(known.get(name, 0))}
    return Owners(state == "stable", owned, frozenset(read.difference(*owned.values())))
