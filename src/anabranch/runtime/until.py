"""Where a run shall end by itself: positions fixed at its start, for all partitions, also those that others read.

A target is reached when everything below it is settled: for our own partitions the plane knows (`committable`; the stop
that follows commits it), for those of other members their commits tell. The group is asked only when our own part is
done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.core.errors import BrokerUnreachable
from anabranch.core.run_options import UNTIL_END
from anabranch.kafka.bounds import committed_positions, log_bounds, positions_at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from anabranch.core.work import TopicPartition
    from anabranch.kafka.admin import Admin
    from anabranch.pipeline.plan import ReadPlan

LOOK_S: Final = 0.1
"""How often our own progress is looked at: the plane's numbers, no question to anyone."""
ASK_S: Final = 0.5
"""How often the group is asked, once our own part is done."""


def find_targets(admin: Admin, read: ReadPlan, until: str | datetime) -> dict[TopicPartition, int]:
    """Ask where the topics end now, or which records are the first at or after a time; blocks.

    A partition without a record below its target needs nobody and is left out.
    """
    bounds = log_bounds(admin, read.topics, read.pattern)
    if until == UNTIL_END or isinstance(until, str):
        ends = {partition: log_end for partition, (_, log_end) in bounds.items()}
    else:
        found = positions_at(admin, list(bounds), until)
        ends = {partition: found.get(partition, log_end) for partition, (_, log_end) in bounds.items()}
    return {partition: end for partition, end in ends.items() if end > bounds[partition][0]}


def ask_committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    """Ask which positions the group has committed; blocks. None are known while no broker answers: ask again."""
    try:
        return committed_positions(admin, group)
    except BrokerUnreachable:
        return {}


def unreached(targets: Mapping[TopicPartition, int], reached: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """Return the partitions whose target lies above the position reached, or of which none is known."""
    return {partition for partition, target in targets.items() if reached.get(partition, -1) < target}
