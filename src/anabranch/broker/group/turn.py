"""What a group may use while one step runs: the time, the timers, and the way out.

One object serves all groups of a coordinator, so that requests that wait can be found by their token alone when their
client goes away.
"""

from anabranch.broker.group.effects import Effect, Reply, Store
from anabranch.broker.group.timers import Timers


class Turn:
    """The surroundings of a step. `waiting` says where each unanswered token is: group, and member if one holds it.

    `rebalances` and `evictions` (members that did not live, join or sync in time) are counted for statistics.
    """

    __slots__ = ("effects", "evictions", "next_store", "now", "now_ms", "rebalances", "stores", "timers", "waiting")

    def __init__(self) -> None:
        self.now = 0.0
        self.now_ms = 0
        self.timers = Timers()
        self.effects: list[Effect] = []
        self.waiting: dict[int, tuple[str, str | None]] = {}
        self.stores: dict[int, str] = {}
        self.next_store = 1
        self.rebalances = 0
        self.evictions = 0

    def begin(self, now: float, now_ms: int) -> None:
        """Start a step at this time."""
        self.now = now
        self.now_ms = now_ms
        self.effects = []

    def reply(self, reply: Reply) -> None:
        """Answer a request; its token waits no longer."""
        self.waiting.pop(reply.token, None)
        self.effects.append(reply)

    def wait(self, token: int, group_id: str, member_id: str | None) -> None:
        """Note that this request is answered later."""
        self.waiting[token] = (group_id, member_id)

    def store(self, group_id: str, entries: tuple[tuple[bytes, bytes | None], ...]) -> int:
        """Ask for entries to be stored on behalf of a group and give the number under which the answer comes."""
        token = self.next_store
        self.next_store += 1
        self.stores[token] = group_id
        self.effects.append(Store(token, entries))
        return token
