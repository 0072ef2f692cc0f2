"""Notices partitions that nobody owns, and says which member must join anew so that the group shares them out.

Cooperative assignment moves a partition in two generations: in the first its owner gives it up, in the second, for
which the owner asks, somebody gets it. A static member that dies in between comes back to what it had in the first,
without a new generation: that is what static membership is for. Nobody asks for the second one then, and the partition
has no owner for as long as nobody else joins or leaves:

1. member 0 has a, b, c, d; member 1 joins; generation 1 gives 0: c, d and 1: nothing, because 0 still works on a, b.
2. member 0 drains a and b, and is killed before it has asked for generation 2.
3. Spark starts member 0 again. The coordinator knows its name and gives it c, d; all are content; a and b are read by
   no one.

The remedy is to have the coordinator forget the place of one member that lives, the one with the least to lose: it
notices with its next heartbeat and joins, and with that all is shared out.

Not a sign of trouble: a group that is just sharing out, a partition that a member of ours still drains (its statistics
have it), and for longer, since nobody tells, one that a process outside of this run drains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from anabranch.core.work import TopicPartition
    from anabranch.kafka.owners import Owners

PATIENCE_S: Final = 3.0
"""Members report twice a second, and ask for the second generation as soon as they have given up a partition."""
STRANGERS_S: Final = 5.0
"""Beyond the grace of a revoke, when somebody else is in the group too."""


class Ownerless:
    """What was seen so far."""

    def __init__(self, group: str, *, grace_s: float) -> None:
        """Begin with nothing seen."""
        self._group = group
        self._grace_s = grace_s
        self._since: float | None = None

    def look(self, owners: Owners, held: Collection[TopicPartition], members: int, now: float) -> int | None:
        """Take what the coordinator says, and what living members say that they hold; answer whose place to free."""
        places = {f"{self._group}-{index}": index for index in range(members)}
        unowned = owners.unowned.difference(held)
        if not unowned or not owners.is_stable or not places.keys() <= owners.owned.keys():
            self._since = None
            return None
        if self._since is None:
            self._since = now
        has_strangers = owners.owned.keys() > places.keys()
        if now - self._since < (self._grace_s + STRANGERS_S if has_strangers else PATIENCE_S):
            return None
        self._since = None
        return min(places.values(), key=lambda index: (len(owners.owned[f"{self._group}-{index}"]), index))
