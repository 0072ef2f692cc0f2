"""Time-outs that no sane client asks for."""

from anabranch.broker.group.coordinator import Coordinator
from anabranch.broker.group.effects import Effect, ReplyJoin, ReplySync, Store
from anabranch.broker.group.events import Abandoned, Event, Join, Stored, Sync, Tick
from anabranch.broker.group.options import GroupOptions
from anabranch.broker.wire.error_codes import ErrorCode


def step(coordinator: Coordinator, event: Event, now: float) -> list[Effect]:
    replies: list[Effect] = []
    waiting = coordinator.step(event, now, int(now * 1000))
    while waiting:
        effect = waiting.pop(0)
        if isinstance(effect, Store):
            waiting += coordinator.step(Stored(effect.token, None), now, int(now * 1000))
        else:
            replies.append(effect)
    return replies


def join(token: int, member: str, instance: str | None, rebalance_timeout_s: float, metadata: bytes = b"") -> Join:
    return Join(
        token=token,
        group_id="g",
        member_id="",
        instance_id=instance,
        client_id="c",
        client_host="/h",
        protocol_type="consumer",
        protocols=(("range", metadata),),
        session_timeout_s=1000,
        rebalance_timeout_s=rebalance_timeout_s,
        requires_member_id=False,
        can_skip_assignment=False,
        new_member_id=member,
    )


def test_a_rebalance_time_out_of_zero_with_nobody_to_lead_does_not_spin() -> None:
    """Only a static member was left, away, with a time-out of 0: the next deadline was always now, for ever."""
    coordinator = Coordinator()
    step(coordinator, join(1, "A", "static", 0.0), 0.0)
    step(coordinator, Sync(2, "g", 1, "A", "static", None, None, (("A", b"x"),)), 0.1)
    step(coordinator, join(3, "B", None, 0.0), 1.0)
    step(coordinator, Abandoned(3), 1.1)
    step(coordinator, Tick(), 2.0)
    deadline = coordinator.next_deadline()
    assert deadline is not None
    assert deadline > 2.0


def test_what_a_member_brings_or_is_given_is_bounded() -> None:
    """Ten joins of 20 MB each were kept for as long as their sessions; a real member brings kilobytes."""
    coordinator = Coordinator(GroupOptions(member_bytes_max=1000))
    (refused,) = step(coordinator, join(1, "A", None, 1.0, bytes(1001)), 0.0)
    assert isinstance(refused, ReplyJoin)
    assert refused.error is ErrorCode.INVALID_REQUEST
    step(coordinator, join(2, "A", None, 1.0, bytes(500)), 0.0)
    (refused,) = step(coordinator, Sync(3, "g", 1, "A", None, None, None, (("A", bytes(1001)),)), 0.1)
    assert isinstance(refused, ReplySync)
    assert refused.error is ErrorCode.INVALID_REQUEST
