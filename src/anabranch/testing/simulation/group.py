"""The scripted coordinator: who has which partition, what is committed, and all the trouble there can be.

A partition has one owner at a time. It goes to another when its owner has released it, or has learned that it is lost,
or is dead. The exception is a frozen member: it cannot learn anything, and its partitions are given away all the same;
what it does after that is late, and the oracle counts it apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.testing.simulation.member import Member
from anabranch.testing.simulation.scenario import Trouble, TroubleKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anabranch.control.plane import Plane
    from anabranch.core.work import TopicPartition
    from anabranch.testing.simulation.world import World

SESSION_S_MAX = 0.4
RESTART_S_MAX = 1.0
DRAIN_S_MAX = 0.5


class Group:
    """The members, and what belongs to whom."""

    def __init__(self, world: World, make_plane: Callable[[str], Plane]) -> None:
        self._world = world
        self._make_plane = make_plane
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.members: list[Member | None] = [None] * world.scenario.members
        self._pids = [0] * world.scenario.members
        self._owners: dict[TopicPartition, Member | None] = dict.fromkeys(world.logs)
        self._memberships: set[int] = set()
        self._membership = 0
        self._evicted: set[Member] = set()
        self._is_over = False

    def start(self) -> None:
        """Start all members and share the partitions out."""
        for number in range(len(self.members)):
            self._start(number)
        self._hand_out(self._owners)

    def is_valid(self, membership: int) -> bool:
        """Say whether commits of this membership are taken."""
        return membership in self._memberships

    def wake(self, partition: TopicPartition) -> None:
        """Let whoever has this partition look for new records."""
        owner = self._owners[partition]
        if owner is not None and owner.is_alive:
            owner.source.wake()

    def befall(self, trouble: Trouble) -> None:
        """Let trouble happen, if there is someone whom it can happen to."""
        if trouble.kind is TroubleKind.MOVE:
            self._move(list(self._owners)[trouble.target], trouble.to)
            return
        member = self.members[trouble.target]
        if member is None or not member.is_available or member in self._evicted:
            return
        match trouble.kind:
            case TroubleKind.CRASH:
                self._crash(member)
            case TroubleKind.STOP:
                member.stop(self._world.clock.now + self._world.random.uniform(0, DRAIN_S_MAX))
            case TroubleKind.EVICT:
                self._evict(member)
            case TroubleKind.FREEZE:
                self._freeze(member)

    def stop_all(self) -> None:
        """Stop everybody, at the end."""
        self._is_over = True
        for member in self.members:
            if member is not None and member.is_available:
                member.stop(self._world.clock.now + 30.0)

    @property
    def is_empty(self) -> bool:
        """Whether all members have left."""
        return not any(self.members)

    # Members come and go

    def _start(self, number: int) -> None:
        if self._is_over:
            return
        self._pids[number] += 1
        member = Member(self._world, self, self._make_plane(f"member-{number}"), number, self._pids[number])
        self.members[number] = member
        self._join(member)

    def _join(self, member: Member) -> None:
        self._membership += 1
        self._memberships.add(self._membership)
        member.membership = self._membership

    def has_left(self, member: Member) -> None:
        """Take the partitions of a member that has stopped; it starts again some time later."""
        if self.members[member.number] is member:
            self._remove(member)
            self._hand_out_later(self._take_from(member), 0.0)

    def _crash(self, member: Member) -> None:
        self._remove(member)
        self._hand_out_later(self._take_from(member), self._world.random.uniform(0, SESSION_S_MAX))

    def _remove(self, member: Member) -> None:
        member.die()
        self._memberships.discard(member.membership)
        self._evicted.discard(member)
        self.members[member.number] = None
        delay_s = self._world.random.uniform(0, RESTART_S_MAX)
        self._world.clock.after(delay_s, lambda: self._start(member.number))

    def _evict(self, member: Member) -> None:
        """Refuse its commits from now on; it learns of it a little later, one way or another."""
        self._memberships.discard(member.membership)
        self._evicted.add(member)
        member.later(self._world.random.uniform(0, SESSION_S_MAX), lambda: self._tell_evicted(member))

    def _tell_evicted(self, member: Member) -> None:
        if member in self._evicted:
            member.source.lose(lambda: self.has_learned(member))

    def has_learned(self, member: Member) -> None:
        """Let an evicted member join again; its partitions go to whoever comes first."""
        if member in self._evicted:
            self._evicted.discard(member)
            self._join(member)
            self._hand_out_later(self._take_from(member), self._world.random.uniform(0, SESSION_S_MAX))

    def _freeze(self, member: Member) -> None:
        """Freeze it past its session; when it is thawed it has a moment to do harm, and is ended."""
        world = self._world
        member.is_frozen = member.is_doomed = True
        world.frozen.add(member.history.process.name)

        def expire() -> None:
            self._memberships.discard(member.membership)
            self._hand_out_later(self._take_from(member), 0.0)

        def thaw() -> None:
            member.thaw()
            member.later(world.random.uniform(0, 0.1), lambda: member.source.lose(lambda: None))
            member.later(0.2, lambda: self._remove(member))

        world.clock.after(world.random.uniform(0, SESSION_S_MAX), expire)
        world.clock.after(SESSION_S_MAX + world.random.uniform(0, 1.0), thaw)

    # Partitions come and go

    def _move(self, partition: TopicPartition, to: int) -> None:
        owner = self._owners[partition]
        if owner is None or not owner.is_available or owner.source.is_revoking or owner in self._evicted:
            return

        def hand_over() -> None:
            if self._owners[partition] is owner:
                self._owners[partition] = None
                target = self.members[to]
                if target is not None and target.is_available and target not in self._evicted:
                    self._assign(partition, target)
                else:
                    self._hand_out([partition])

        owner.source.revoke([partition], hand_over)

    def _take_from(self, member: Member) -> list[TopicPartition]:
        taken = [partition for partition, owner in self._owners.items() if owner is member]
        for partition in taken:
            self._owners[partition] = None
        return taken

    def _hand_out_later(self, partitions: Iterable[TopicPartition], delay_s: float) -> None:
        self._world.clock.after(delay_s, lambda: self._hand_out(partitions))

    def _hand_out(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if self._owners[partition] is not None or self._is_over:
                continue
            able = [one for one in self.members if one is not None and one.is_available and one not in self._evicted]
            if able:
                self._assign(partition, self._world.random.choice(able))
            else:
                self._hand_out_later([partition], 0.1)

    def _assign(self, partition: TopicPartition, member: Member) -> None:
        self._owners[partition] = member
        member.source.assign([partition])
